import { describe, expect, it } from 'vitest';
import { defaultStateDirectory, socketPathIn } from '../../../src/local/paths.js';

describe('defaultStateDirectory', () => {
  it.each([
    [{ HOME: '/home/a' }, 'linux', 1000, '/home/a/.local/state/atlas/blue'],
    [{ HOME: '/home/a', XDG_STATE_HOME: '/state' }, 'linux', 1000, '/state/atlas/blue'],
    [{ HOME: '/home/a', XDG_STATE_HOME: 'relative' }, 'linux', 1000, '/home/a/.local/state/atlas/blue'],
    [{ HOME: '/Users/a' }, 'darwin', 501, '/Users/a/Library/Application Support/Atlas/blue'],
    [{ HOME: '/root', XDG_STATE_HOME: '/state' }, 'linux', 0, '/var/lib/atlas/blue'],
  ] as const)('with %j on %s for uid %d is %s', (env, platform, uid, expected) => {
    expect(defaultStateDirectory(env, 'blue', platform, uid)).toBe(expected);
  });
});

describe('socketPathIn', () => {
  it('is absolute, also for a relative directory', () => {
    expect(socketPathIn('state')).toBe(`${process.cwd()}/state/atlasd.sock`);
  });
});
