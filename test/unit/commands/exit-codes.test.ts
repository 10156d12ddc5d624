import { describe, expect, it } from 'vitest';
import { EXIT_MEANINGS, EXIT_OF_ERROR } from '../../../src/commands/exit-codes.js';
import { COMMANDS } from '../../../src/commands/index.js';
import { ERRORS } from '../../../src/contract/errors.js';
import { EXIT } from '../../../src/contract/exit-codes.js';

describe('exit codes', () => {
  it('exist for exactly the errors of the catalogue', () => {
    expect(Object.keys(EXIT_OF_ERROR).sort()).toEqual(Object.keys(ERRORS).sort());
  });

  it('are all known and none of an error says that all is well', () => {
    const known: number[] = Object.values(EXIT);
    for (const [code, exit] of Object.entries(EXIT_OF_ERROR)) {
      expect(known, code).toContain(exit);
      expect(exit, code).not.toBe(EXIT.done);
    }
  });

  it('each have a meaning', () => {
    expect(Object.keys(EXIT_MEANINGS).map(Number).sort()).toEqual(Object.values(EXIT).sort());
  });

  it.each(COMMANDS.map((spec) => [spec.path.join(' '), spec] as const))(
    'are listed by `atlas %s` without those that every command has',
    (_, { exitCodes }) => {
      expect(new Set(exitCodes).size).toBe(exitCodes.length);
      for (const common of [EXIT.done, EXIT.failed, EXIT.usage]) expect(exitCodes).not.toContain(common);
    },
  );
});
