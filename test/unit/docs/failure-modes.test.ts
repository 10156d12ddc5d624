/** Every test that docs/failure-modes.md and docs/placement.md name is there, and every failure mode names one. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { formatDurationMs } from '../../../src/contract/duration.js';
import { PRESENCE_TTL_MS } from '../../../src/contract/fleet.js';
import { ASK_OWNER_MS, HAND_OVER_MS, SESSION_DEFAULTS } from '../../../src/contract/session.js';

const page = new URL('../../../docs/failure-modes.md', import.meta.url);
const text = readFileSync(page, 'utf8');
const placement = readFileSync(new URL('placement.md', page), 'utf8');
const citedBy = (source: string) =>
  [...source.matchAll(/\[[a-z ]+\]\((\.\.\/test\/[^)]+)\): "([^"]+)"/g)].map(
    ([, path, name]) => [path!, name!] as const,
  );

describe('docs/placement.md', () => {
  it('names a test in every row', () => {
    expect(citedBy(placement).length).toBeGreaterThan(6);
  });
});

describe('docs/failure-modes.md', () => {
  it.each([...citedBy(text), ...citedBy(placement)])('%s has the test "%s"', (path, name) => {
    const source = readFileSync(new URL(path, page), 'utf8').replace(/\(\n\s+'/g, "('");
    // The second is that of a table of cases.
    expect([`it('${name}'`, `)('${name}'`].some((start) => source.includes(start))).toBe(true);
  });

  it('names a test in every row', () => {
    const rows = text.split('\n').filter((line) => line.startsWith('| ') && line.split('|').length === 7);
    const bare = rows.filter(
      (row) => !row.includes('../test/') && !row.startsWith('| what happens') && !/^\| -/.test(row),
    );
    expect(rows.length).toBeGreaterThan(20);
    expect(bare).toEqual([]);
  });

  it('has the defaults of the contract', () => {
    const defaults = new Map(
      [...text.matchAll(/^\| ([^|]+?) +\| ([\d.]+ \w+)/gm)].map((row) => [row[1]!, row[2]!.replace('min', 'm')]),
    );
    const inTable = (what: string): string => (defaults.get(what) ?? 'nothing').replace(' ', '').replace('60s', '1m');
    expect(inTable('lease TTL')).toBe(formatDurationMs(SESSION_DEFAULTS.leaseTtlMs));
    expect(inTable('recovery window')).toBe(formatDurationMs(SESSION_DEFAULTS.recoveryWindowMs));
    expect(inTable('hand-over to the next run')).toBe(formatDurationMs(HAND_OVER_MS));
    expect(inTable('question to the owner')).toBe(formatDurationMs(ASK_OWNER_MS));
    expect(inTable('presence TTL')).toBe(formatDurationMs(PRESENCE_TTL_MS));
    expect(inTable('heartbeat of a pinned step')).toBe(formatDurationMs(SESSION_DEFAULTS.pinnedHeartbeatTimeoutMs));
    expect(inTable('maximum duration')).toBe(formatDurationMs(SESSION_DEFAULTS.maxDurationMs));
    expect(inTable('acquire timeout')).toBe(formatDurationMs(SESSION_DEFAULTS.acquireTimeoutMs));
  });
});
