import { describe, expect, it } from 'vitest';
import { formatFindings, sameFleet } from '../../../../src/commands/support/run-doctor.js';
import { bad, ok } from '../../../../src/fleet/doctor/findings.js';
import { styleFor } from '../../../../src/terminal/style.js';

const plain = styleFor({ isTTY: false }, {});
const FINDINGS = [
  ok('server', '127.0.0.1:7233', 'Temporal 1.32.0'),
  bad('queues', 'fail', 'worker-7', 'it does not answer', 'on h7: `systemctl status atlasd`'),
  bad('disks', 'warn', 'worker-8', 'little room \u001b[2J', '`df -h`'),
];

describe('formatFindings', () => {
  it('gives each finding a line that begins with its level, and what to run below it', () => {
    expect(formatFindings(FINDINGS, 'table', plain)).toBe(
      [
        'ok    server    127.0.0.1:7233: Temporal 1.32.0',
        'fail  queues    worker-7: it does not answer',
        '      next: on h7: `systemctl status atlasd`',
        'warn  disks     worker-8: little room \ufffd[2J',
        '      next: `df -h`',
        '',
        'Something fails: 1 fail, 1 warn, 1 ok.',
        '',
      ].join('\n'),
    );
  });

  it('says in one word how it is', () => {
    expect(formatFindings(FINDINGS.slice(2), 'table', plain)).toContain('Nothing fails: 0 fail, 1 warn, 0 ok.');
    expect(formatFindings(FINDINGS.slice(0, 1), 'table', plain)).toContain('Nothing is wrong: 0 fail, 0 warn, 1 ok.');
  });

  it('gives programs the same findings', () => {
    const summary = { ok: 1, warn: 1, fail: 1 };
    expect(JSON.parse(formatFindings(FINDINGS, 'json', plain))).toEqual({ version: 1, summary, findings: FINDINGS });
    const lines = formatFindings(FINDINGS, 'jsonl', plain).trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      ...FINDINGS.map((finding) => ({ version: 1, finding })),
      { version: 1, summary },
    ]);
  });

  it('colours the level and nothing that others chose', () => {
    const text = formatFindings(FINDINGS, 'table', styleFor({ isTTY: true }, { TERM: 'xterm' }));
    expect(text).toContain('\u001b[31mfail\u001b[39m  queues');
  });
});

describe('sameFleet', () => {
  const parsed = (options: Readonly<Record<string, unknown>>) => ({ args: [], options, given: new Set<string>() });
  it('repeats what was given, and no default', () => {
    expect(sameFleet(parsed({ fleet: 'atlas' }))).toBe('');
    expect(sameFleet(parsed({ fleet: 'blue', address: '127.0.0.1:7233', profile: 'prod' }))).toBe(
      ' --address 127.0.0.1:7233 --profile prod --fleet blue',
    );
  });
});
