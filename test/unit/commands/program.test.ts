import { describe, expect, it } from 'vitest';
import { runProgram, wrap } from '../../../src/commands/program.js';
import type { CommandSpec, ParsedCommand, ProgramSpec } from '../../../src/commands/spec.js';
import { integerBetween } from '../../../src/commands/support/parse.js';
import { EXIT } from '../../../src/contract/exit-codes.js';
import { fakeContext } from '../../support/fake-context.js';

function programWith(overrides: Partial<CommandSpec> = {}): {
  program: ProgramSpec;
  calls: ParsedCommand[];
  loads: number[];
} {
  const calls: ParsedCommand[] = [];
  const loads: number[] = [];
  const spec: CommandSpec = {
    path: ['things', 'ls'],
    summary: 'List things.',
    arguments: [{ name: 'filter', description: 'a filter', required: false }],
    options: [
      { flags: '-o, --format <format>', description: 'format', choices: ['text', 'json'], default: 'text' },
      { flags: '--limit <n>', description: 'how many', env: 'THINGS_LIMIT', parse: integerBetween(1, 9) },
      { flags: '--tag <tag>', description: 'tag', repeatable: true },
      { flags: '--all', description: 'all', env: 'THINGS_ALL' },
    ],
    examples: [{ command: 'demo things ls', explanation: 'all things' }],
    exitCodes: [EXIT.notFound],
    load: async () => {
      loads.push(1);
      return async (_, parsed) => {
        calls.push(parsed);
        return EXIT.done;
      };
    },
    ...overrides,
  };
  return { program: { name: 'demo', summary: 'Demo.', commands: [spec], groups: { things: 'things' } }, calls, loads };
}

async function run(argv: string[], env: NodeJS.ProcessEnv = {}, overrides: Partial<CommandSpec> = {}) {
  const { program, calls, loads } = programWith(overrides);
  const context = fakeContext({ env });
  const exit = await runProgram(program, argv, context);
  return { exit, calls, loads, out: context.out(), err: context.err() };
}

describe('runProgram', () => {
  it('runs a command with its arguments and options', async () => {
    const { exit, calls } = await run(['things', 'ls', 'x', '--limit', '3', '--tag', 'a', '--tag', 'b']);
    expect(exit).toBe(0);
    expect(calls[0]).toMatchObject({ args: ['x'], options: { format: 'text', limit: 3, tag: ['a', 'b'] } });
    expect([...calls[0]!.given].sort()).toEqual(['limit', 'tag']);
  });

  it('takes an option from its variable, and the flag over it', async () => {
    expect((await run(['things', 'ls'], { THINGS_LIMIT: '4', THINGS_ALL: 'yes' })).calls[0]!.options).toMatchObject({
      limit: 4,
      all: true,
    });
    expect((await run(['things', 'ls', '--limit', '5'], { THINGS_LIMIT: '4' })).calls[0]!.options).toMatchObject({
      limit: 5,
    });
    expect((await run(['things', 'ls'], { THINGS_LIMIT: '' })).calls[0]!.options['limit']).toBeUndefined();
  });

  it('names the variable whose value is wrong', async () => {
    const { exit, err } = await run(['things', 'ls'], { THINGS_LIMIT: 'many' });
    expect(exit).toBe(2);
    expect(err).toContain('THINGS_LIMIT: "many" is not a whole number from 1 to 9.');
  });

  it('loads nothing for help and for a line that is not valid', async () => {
    for (const argv of [['--help'], ['things', 'ls', '--help'], ['things', 'ls', '--nope'], []]) {
      expect((await run(argv)).loads).toEqual([]);
    }
  });

  it.each([
    [['thing'], 'Unknown command "thing" of demo. Did you mean things?', 'demo --help'],
    [['things', 'lss'], 'Unknown command "lss" of demo things. Did you mean ls?', 'demo things --help'],
    [['things'], 'demo things needs a command: ls.', 'demo things --help'],
    [['things', 'ls', '--limt', '1'], 'Unknown option "--limt". Did you mean --limit?', 'demo things ls --help'],
    [['things', 'ls', '--limit'], 'Option "--limit <n>" needs a value.', 'demo things ls --help'],
    [['things', 'ls', '--limit', '99'], '--limit: "99" is not a whole number from 1 to 9.', 'demo things ls --help'],
    [
      ['things', 'ls', '-o', 'jsn'],
      '--format: "jsn" is not one of text, json. Did you mean json?',
      'demo things ls --help',
    ],
    [['things', 'ls', 'a', 'b'], 'Too many arguments', 'demo things ls --help'],
    [['nope', '--help'], 'Unknown command "nope" of demo.', 'demo --help'],
  ])('refuses %j with one line and what to run', async (argv, message, help) => {
    const { exit, err, out } = await run(argv);
    expect(exit).toBe(2);
    expect(out).toBe('');
    const [first, second, ...rest] = err.trimEnd().split('\n');
    expect(first).toContain(message);
    expect(second).toContain(help);
    expect(rest).toEqual([]);
  });

  it('reports a usage error as JSON when JSON was asked for', async () => {
    for (const format of [['-o', 'json'], ['--format=json'], ['-ojson'], ['--format', 'json']]) {
      const { err } = await run(['things', 'ls', '--nope', ...format]);
      expect(JSON.parse(err)).toMatchObject({ version: 1, error: { code: 'Usage', exitCode: 2 } });
    }
  });

  it('shows examples and exit codes in the help of a command', async () => {
    const { exit, out } = await run(['help', 'things', 'ls']);
    expect(exit).toBe(0);
    expect(out).toContain('demo things ls\n      all things');
    expect(out).toMatch(/Exit codes:\n {2}0 {2}done[^]*4 {2}what was asked for/);
    expect(out).toContain('env: THINGS_LIMIT');
  });

  it('turns what a command throws into a report and an exit code', async () => {
    const failing = { load: async () => () => Promise.reject(new Error('broken')) };
    const { exit, err } = await run(['things', 'ls'], {}, failing);
    expect(exit).toBe(1);
    expect(err).toContain('Unexpected: broken');
  });

  it('runs a program that is one command, and gives signals to it', async () => {
    const { program, calls } = programWith({ path: [], handlesSignals: true });
    let released = 0;
    const exit = await runProgram(program, ['--limit', '2'], fakeContext(), { releaseSignals: () => (released += 1) });
    expect([exit, released, calls[0]!.options['limit']]).toEqual([0, 1, 2]);
  });
});

describe('a program that is a command and has others', () => {
  interface Call extends ParsedCommand {
    readonly command: string;
  }
  async function runBoth(argv: string[], env: NodeJS.ProcessEnv = {}) {
    const calls: Call[] = [];
    const command = (path: string[], flags: string[]): CommandSpec => ({
      path,
      summary: `Do ${path.join(' ') || 'it'}.`,
      arguments: [],
      options: flags.map((given) => ({
        flags: given,
        description: 'an option',
        env: given === '--dir <dir>' ? 'DIR' : 'NAME',
      })),
      examples: [{ command: ['demod', ...path].join(' '), explanation: 'as it is' }],
      exitCodes: [],
      load: async () => async (_, parsed) => {
        calls.push({ command: path.join(' '), ...parsed });
        return EXIT.done;
      },
    });
    const commands = [command([], ['--dir <dir>', '--name <name>']), command(['status'], ['--dir <dir>'])];
    const context = fakeContext({ env });
    const exit = await runProgram({ name: 'demod', summary: 'Demo.', commands }, argv, context);
    return { exit, calls, out: context.out(), err: context.err() };
  }

  it.each([
    [[], {}, '', {}],
    [['--dir', 'a', '--name', 'b'], {}, '', { dir: 'a', name: 'b' }],
    [['status'], {}, 'status', {}],
    [['status', '--dir', 'a'], {}, 'status', { dir: 'a' }],
    [['status'], { DIR: 'a', NAME: 'b' }, 'status', { dir: 'a' }],
    [['--dir', 'status'], {}, '', { dir: 'status' }],
  ] as const)('%j with %j runs "%s" with %j', async (argv, env, command, options) => {
    const { exit, calls, err } = await runBoth([...argv], env);
    expect({ exit, err }).toEqual({ exit: 0, err: '' });
    expect(calls).toMatchObject([{ command, options }]);
    expect(calls[0]!.options).toEqual(options);
  });

  it.each([
    [['statsu'], 'Unknown command "statsu" of demod. Did you mean status?', 'demod --help'],
    [['--name', 'x', 'statsu'], 'Unknown command "statsu" of demod. Did you mean status?', 'demod --help'],
    [['nope', '--help'], 'Unknown command "nope" of demod.', 'demod --help'],
    [['--dir', 'a', 'status'], '--dir stands before "status"', '`demod status --dir ...`'],
    [['--dir', 'a', 'status', '--dir', 'b'], '--dir stands before "status"', '`demod status --dir ...`'],
    [['--name', 'a', 'status'], '--name stands before "status"', 'Leave it out'],
    [['status', '--name', 'a'], 'Unknown option "--name".', 'demod status --help'],
    [['status', 'extra'], 'Too many arguments', 'demod status --help'],
    [['--nmae', 'x'], 'Unknown option "--nmae". Did you mean --name?', 'demod --help'],
  ])('refuses %j and runs nothing', async (argv, message, next) => {
    const { exit, calls, out, err } = await runBoth(argv);
    expect({ exit, calls, out }).toEqual({ exit: 2, calls: [], out: '' });
    const [first, second] = err.split('\n');
    expect(first).toContain(message);
    expect(second).toContain(next);
  });

  it('shows both in its help, and each command has its own', async () => {
    const { out } = await runBoth(['--help']);
    expect(out).toContain('Usage: demod [options]\n       demod COMMAND [options]\n');
    expect(out).toMatch(
      /--name <name>[^]*Commands:\n {2}status +Do status\.\n[^]*Exit codes:[^]*Run `demod COMMAND --help`/,
    );
    const status = (await runBoth(['help', 'status'])).out;
    expect(status).toContain('Usage: demod status [options]');
    expect(status).not.toContain('--name');
  });
});

describe('wrap', () => {
  it('breaks at blanks and keeps words that are too long', () => {
    expect(wrap('one two threeandmore', 7, ' ')).toBe(' one\n two\n threeandmore');
  });
});
