import { describe, expect, it } from 'vitest';
import { DOCUMENT_SETTINGS, readSettings } from '../../../../src/jobs/document/settings.js';

describe('settings of the document job', () => {
  it('have defaults that are valid', () => {
    expect(readSettings({})).toEqual({
      allowFiles: [],
      allowOutput: [],
      allowServed: ['127.0.0.0/8', '::1/128', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
      allowUrls: [],
      cacheBytes: 2_147_483_648,
      maxBytes: 4_294_967_295,
      maxPages: 5000,
      ocrEngine: 'auto',
      toolMemoryBytes: 1_073_741_824,
      ocrDpi: 200,
    });
  });

  it('are read from the environment, lists separated by commas', () => {
    const settings = readSettings({
      ATLAS_DOCUMENT_ALLOW_FILES: '/srv/a, /srv/b,',
      ATLAS_DOCUMENT_MAX_PAGES: '12',
      ATLAS_DOCUMENT_OCR_ENGINE: 'npm',
      ATLAS_DOCUMENT_OCR_DPI: '',
    });
    expect(settings).toMatchObject({ allowFiles: ['/srv/a', '/srv/b'], maxPages: 12, ocrEngine: 'npm', ocrDpi: 200 });
  });

  it.each([
    ['ATLAS_DOCUMENT_MAX_PAGES', 'many'],
    ['ATLAS_DOCUMENT_MAX_PAGES', '0'],
    ['ATLAS_DOCUMENT_MAX_BYTES', '4294967296'],
    ['ATLAS_DOCUMENT_OCR_DPI', '10000'],
    ['ATLAS_DOCUMENT_OCR_ENGINE', 'abbyy'],
  ])('refuse %s=%s by name', (name, value) => {
    expect(() => readSettings({ [name]: value })).toThrow(
      expect.objectContaining({ code: 'ConfigInvalid', message: expect.stringContaining(name) as string }),
    );
  });

  it('each have a key, a variable and a description', () => {
    for (const setting of DOCUMENT_SETTINGS) {
      expect(setting.key).toMatch(/^document\.[a-z_]+$/);
      expect(setting.env).toBe(`ATLAS_${setting.key.toUpperCase().replace('.', '_')}`);
      expect(setting.description).toMatch(/^[A-Z].*\.$/);
    }
  });
});
