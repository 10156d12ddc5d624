/**
 * Summaries of real files, where they are at hand: a folder of public PDFs beside the repository, whose licences do not
 * allow them in it.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { cleanLayer } from '../../../../src/jobs/document/pages/layer.js';
import type { Outline } from '../../../../src/jobs/document/summary/outline.js';
import { openPdf } from '../../../../src/jobs/document/pages/pdf-reader.js';
import { runSliced } from '../../../../src/jobs/document/summary/slices.js';
import { summarizePages } from '../../../../src/jobs/document/summary/summarize.js';

const FOLDER = fileURLToPath(new URL('../../../../../shared/pdfs', import.meta.url));
const isThere = existsSync(FOLDER);
const { signal } = new AbortController();

interface ReadPdf {
  readonly texts: readonly string[];
  readonly outline: Outline;
}

async function read(name: string): Promise<ReadPdf> {
  const reader = await openPdf({ path: join(FOLDER, name), name, signal });
  try {
    const texts: string[] = [];
    for (let page = 1; page <= reader.pages; page += 1) texts.push(cleanLayer((await reader.facts(page)).text));
    return { texts, outline: await reader.outline() };
  } finally {
    await reader.close();
  }
}

const solid = (text: string): string => text.replace(/\s+/g, '');

describe.skipIf(!isThere)(`summaries of real files${isThere ? '' : ' (../shared/pdfs is not there)'}`, () => {
  it.each([
    { name: 'book-352-pages.pdf', least: 12, sections: 13, phrase: /copyright/ },
    { name: 'many-pages-117.pdf', least: 12, sections: 11, phrase: /topologischer Raum/ },
    { name: 'three-column-15p.pdf', least: 12, sections: 0, phrase: /FAA/ },
    { name: 'scan-mrc-jpx-jbig2-ocr-layer.pdf', least: 12, sections: 0, phrase: /shell/ },
    { name: 'cjk-japanese-cmap.pdf', least: 12, sections: 0, phrase: /リスク/ },
    { name: 'rotated-table.pdf', least: 0, sections: 0, phrase: null },
  ])('$name', async ({ name, least, sections, phrase }) => {
    const { texts, outline } = await read(name);
    const jsonl = texts.map((text, index) => `${JSON.stringify({ page: index + 1, text })}\n`).join('');
    const pages = texts.map(solid);
    const summary = await runSliced(summarizePages(jsonl, outline, 12), signal);
    expect(summary.sentences.length).toBeGreaterThanOrEqual(least);
    expect(summary.sections).toHaveLength(sections);
    const all = [...summary.sentences, ...summary.sections.flatMap((section) => section.sentences)];
    for (const { text, page } of all) {
      expect(pages[page - 1]).toContain(solid(text));
      // Slugs, marks of the printer, running heads, and what the lists at the end consist of.
      expect(text).not.toMatch(/qxd|\d+:\d+ [AP]M|4TH PASS|Federal Register \/|^\d+ \p{Lu}{3}|\d\d[SR]$/u);
    }
    for (const { sentences, firstPage, lastPage } of summary.sections) {
      for (const { page } of sentences) {
        expect(page).toBeGreaterThanOrEqual(firstPage);
        expect(page).toBeLessThanOrEqual(lastPage + 1);
      }
    }
    expect(summary.keyPhrases.length).toBeLessThanOrEqual(10);
    if (phrase === null) expect(summary.keyPhrases).toEqual([]);
    else expect(summary.keyPhrases.join(', ')).toMatch(phrase);
  });
});
