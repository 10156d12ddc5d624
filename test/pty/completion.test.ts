/**
 * The completion scripts in the shells that they are for. bash and zsh complete only at a terminal, so each runs in a
 * pseudo-terminal, with a key that prints the line as it is; fish answers on its command line. The fleet is played by a
 * script there: the real answer has a bound of time, which a busy machine misses.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawn, type IPty } from '@lydell/node-pty';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ATLAS } from '../../src/atlas.js';
import type { CommandSpec, ProgramSpec } from '../../src/commands/spec.js';
import { bashCompletion } from '../../src/commands/support/completion/bash.js';
import { fishCompletion } from '../../src/commands/support/completion/fish.js';
import { printLiveCandidates } from '../../src/commands/support/completion/live.js';
import { zshCompletion } from '../../src/commands/support/completion/zsh.js';
import { CONNECTION_OPTIONS } from '../../src/commands/support/connection.js';
import { DEFAULT_CONNECT_TIMEOUT_MS } from '../../src/temporal/connect.js';
import { runAtlas } from '../support/cli.js';
import { fakeContext, parsedCommand } from '../support/fake-context.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, sessionsOf, startWorker, startWorkflow } from '../support/fixtures.js';
import { temporalAddress, temporalEnvironment, useClient } from '../support/server.js';

const nothing: Pick<CommandSpec, 'examples' | 'exitCodes' | 'load'> = {
  examples: [],
  exitCodes: [],
  load: () => Promise.reject(new Error('Completion runs no command.')),
};

/** The program with commands for every kind of value, whichever the real ones have. */
const PROGRAM: ProgramSpec = {
  ...ATLAS,
  commands: [
    ...ATLAS.commands.filter(({ path }) => ['run', 'workers ls', 'completion'].includes(path.join(' '))),
    {
      ...nothing,
      path: ['move'],
      summary: 'Move a session: "it\'s" [easy] to do.',
      arguments: [
        { name: 'session', description: 'the session', required: true, completes: 'session' },
        { name: 'file', description: 'a file', required: false, completes: 'file' },
      ],
      options: [
        { flags: '--to <worker>', description: "the worker's name", completes: 'worker' },
        { flags: '--reason <text>', description: 'why' },
        { flags: '-n, --dry-run', description: 'only say what would be done' },
        ...CONNECTION_OPTIONS,
      ],
    },
    {
      ...nothing,
      path: ['workers', 'stop'],
      summary: 'Stop workers.',
      arguments: [{ name: 'worker', description: 'workers', required: true, variadic: true, completes: 'worker' }],
      options: CONNECTION_OPTIONS,
    },
  ],
};

let directory: string;
let environment: NodeJS.ProcessEnv;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-completion-'));
  const program = join(directory, 'bin', 'atlas');
  await mkdir(join(directory, 'bin'));
  await writeFile(program, FLEET);
  await chmod(program, 0o755);
  await writeFile(join(directory, 'atlas.bash'), bashCompletion(PROGRAM));
  await writeFile(join(directory, 'atlas.zsh'), zshCompletion(PROGRAM));
  await writeFile(join(directory, 'atlas.fish'), fishCompletion(PROGRAM));
  await writeFile(join(directory, 'bashrc'), BASHRC);
  await writeFile(join(directory, '.zshrc'), ZSHRC);
  await mkdir(join(directory, 'files'));
  await writeFile(join(directory, 'files', 'report.pdf'), '');
  environment = {
    ...temporalEnvironment(),
    HOME: directory,
    ZDOTDIR: directory,
    XDG_CONFIG_HOME: join(directory, 'config'),
    XDG_DATA_HOME: join(directory, 'data'),
    TERM: 'xterm',
    PATH: `${join(directory, 'bin')}:${process.env['PATH']}`,
  };
});
afterAll(() => rm(directory, { recursive: true, maxRetries: 3 }));

/** `atlas` as the scripts call it; keeps what it was asked. */
const FLEET = `#!/bin/sh
echo "$*" >>"$HOME/asked"
case $2 in
  worker) printf 'alpha-1\\tready, 1 of 4 slots taken\\nbeta-2\\tlost: "it\\047s" [gone]\\n' ;;
  session) printf '985d34113fc8\\ton alpha-1, order-17\\n' ;;
esac
echo 'an error that nobody must see' >&2
`;

/** What the last call asked. */
async function asked(): Promise<string | undefined> {
  return (await readFile(join(directory, 'asked'), 'utf8')).trimEnd().split('\n').at(-1);
}

const BASHRC = `PS1='READY> '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
show() { printf '\\nLINE<%s>\\n' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }
bind -x '"\\C-t": show'
bind '"\\C-xa": insert-completions'
source ~/atlas.bash
`;

const ZSHRC = `PS1='READY> '
unsetopt beep prompt_sp
autoload -Uz compinit && compinit -u -D
source ~/atlas.zsh
show() { print -r -- $'\\n'"LINE<$BUFFER>"; BUFFER= }
zle -N show
bindkey '^T' show
zle -C all-matches complete-word _generic
bindkey '^Xa' all-matches
zstyle ':completion:all-matches::::' completer _all_matches _complete
zstyle ':completion:all-matches:*' insert true
`;

interface Shell {
  /** The line after the Tab key. */
  tab(line: string): Promise<string>;
  /** The line with everything that is offered at its end. */
  all(line: string): Promise<string>;
}

const ptys: IPty[] = [];
afterEach(async () => {
  for (const pty of ptys.splice(0)) {
    const ended = new Promise((resolve) => pty.onExit(resolve));
    pty.kill('SIGKILL');
    await ended;
  }
});

const ARGUMENTS = { bash: ['--noprofile', '--rcfile', 'bashrc', '-i'], zsh: ['-d', '-i'] };

async function openShell(shell: 'bash' | 'zsh'): Promise<Shell> {
  const pty = spawn(shell, ARGUMENTS[shell], { cwd: directory, cols: 200, rows: 50, env: environment });
  ptys.push(pty);
  let output = '';
  let wake = (): void => undefined;
  pty.onData((data) => {
    output += data;
    wake();
  });
  const until = async (pattern: RegExp): Promise<RegExpExecArray> => {
    for (;;) {
      const match = pattern.exec(output);
      if (match !== null) return match;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  };
  const press = async (line: string, key: string): Promise<string> => {
    output = '';
    pty.write(`${line}${key}\u0014`);
    return (await until(/LINE<(.*)>\r?\n/))[1]!;
  };
  await until(/READY> /);
  return { tab: (line) => press(line, '\t'), all: (line) => press(line, '\u0018a') };
}

function fish(line: string): string[] {
  const { stdout, stderr } = spawnSync('fish', ['-N', '-c', 'source ~/atlas.fish; complete -C $argv[1]', line], {
    cwd: directory,
    env: environment,
    encoding: 'utf8',
  });
  expect(stderr).toBe('');
  return stdout
    .split('\n')
    .filter((text) => text !== '')
    .map((text) => text.split('\t')[0]!)
    .sort();
}

function isInstalled(shell: string): boolean {
  if (spawnSync(shell, ['--version']).error === undefined) return true;
  console.log(`Completion is not tried in ${shell}: it is not installed here.`);
  return false;
}

describe.each(['bash', 'zsh'] as const)('completion in %s', (name) => {
  describe.skipIf(!isInstalled(name))('at a terminal', () => {
    it('offers commands, options, choices and files', async () => {
      const shell = await openShell(name);
      expect(await shell.tab('atlas wor')).toBe('atlas workers ');
      expect((await shell.all('atlas workers ')).split(' ').sort()).toEqual(
        expect.arrayContaining(['atlas', 'ls', 'stop', 'workers']),
      );
      expect(await shell.tab('atlas workers l')).toBe('atlas workers ls ');
      expect(await shell.tab('atlas mo')).toBe('atlas move ');
      expect(await shell.tab('atlas move --dr')).toBe('atlas move --dry-run ');
      expect(await shell.tab('atlas workers ls --format w')).toBe('atlas workers ls --format wide ');
      expect(await shell.tab('atlas workers ls -o w')).toBe('atlas workers ls -o wide ');
      expect((await shell.tab('atlas workers ls --format=w')).trimEnd()).toBe('atlas workers ls --format=wide');
      expect(await shell.tab('atlas --address 127.0.0.1:1 workers l')).not.toContain('127.0.0.1:1:');
      expect(await shell.tab('atlas workers ls --address 127.0.0.1:1 --fle')).toMatch(/127\.0\.0\.1:1 --fleet[ =]$/);
      expect(await shell.tab('atlas completion f')).toBe('atlas completion fish ');
      expect(await shell.tab('atlas run process-document files/rep')).toBe(
        'atlas run process-document files/report.pdf ',
      );
      expect(await shell.tab('atlas help workers l')).toBe('atlas help workers ls ');
      // The hidden command, and values of which nothing is known.
      expect(await shell.tab('atlas __c')).toBe('atlas __c');
      expect(await shell.tab('atlas move --reason f')).toBe('atlas move --reason f');
    });

    it('offers workers and sessions, and hands over what stands on the line', async () => {
      const shell = await openShell(name);
      expect(await shell.tab('atlas workers stop --fleet blue al')).toBe('atlas workers stop --fleet blue alpha-1 ');
      expect(await asked()).toBe('__complete worker -- workers stop --fleet blue');
      expect(await shell.tab('atlas workers stop alpha-1 --address 127.0.0.1:1 b')).toBe(
        'atlas workers stop alpha-1 --address 127.0.0.1:1 beta-2 ',
      );
      expect(await asked()).toBe('__complete worker -- workers stop alpha-1 --address 127.0.0.1:1');
      const everyone = (await shell.all('atlas workers stop --fleet=blue ')).trim().split(' ').slice(4);
      expect(everyone.sort()).toEqual(['alpha-1', 'beta-2']);
      expect(await asked()).toBe('__complete worker -- workers stop --fleet=blue');
      expect(await shell.tab('atlas move --to be')).toBe('atlas move --to beta-2 ');
      expect((await shell.tab('atlas move --to=be')).trimEnd()).toBe('atlas move --to=beta-2');
      expect(await shell.tab('atlas move 98')).toBe('atlas move 985d34113fc8 ');
      expect(await asked()).toBe('__complete session -- move');
    });
  });
});

describe.skipIf(!isInstalled('fish'))('completion in fish', () => {
  it('offers commands, options, choices and files', () => {
    expect(fish('atlas ')).toEqual(['completion', 'help', 'move', 'run', 'workers']);
    expect(fish('atlas workers ')).toEqual(['ls', 'stop']);
    expect(fish('atlas help workers ')).toEqual(['ls', 'stop']);
    expect(fish('atlas workers ls --fo')).toEqual(['--format']);
    expect(fish('atlas workers ls -o ')).toEqual(['json', 'jsonl', 'name', 'table', 'wide']);
    expect(fish('atlas workers ls --format=w')).toEqual(['--format=wide']);
    expect(fish('atlas move --d')).toEqual(['--dry-run']);
    expect(fish('atlas completion ')).toEqual(['bash', 'fish', 'zsh']);
    expect(fish('atlas run process-document files/')).toEqual(['files/report.pdf']);
    expect(fish('atlas run --address files/')).toEqual([]);
    expect(fish('atlas __')).toEqual([]);
  });

  it('offers workers and sessions, and hands over what stands on the line', async () => {
    expect(fish('atlas workers stop --fleet blue alpha-1 ')).toEqual(['alpha-1', 'beta-2']);
    expect(await asked()).toBe('__complete worker -- workers stop --fleet blue alpha-1');
    expect(fish('atlas move --to ')).toEqual(['alpha-1', 'beta-2']);
    expect(fish('atlas move 98')).toEqual(['985d34113fc8']);
    expect(await asked()).toBe('__complete session -- move');
    expect(fish('atlas move 985d34113fc8 files/')).toEqual(['files/report.pdf']);
  });
});

describe('atlas __complete', () => {
  const client = useClient();

  it('prints the workers and sessions of the fleet that the line names', async () => {
    const fleet = uniqueFleet();
    // Not late with its presence on a busy machine, which would be said too.
    await startWorker({ fleet, name: 'alpha-1', args: ['--presence-ttl', '1m'] });
    const handle = await startWorkflow(client(), fleet, 'holder');
    const { session, workflowId } = await eventually(async () => (await sessionsOf(client(), fleet))[0], {
      what: 'a session',
    });
    // In this process: its start counts too, and a busy machine alone would take the time that there is.
    const printed = async (kind: string, ...words: string[]): Promise<string> =>
      await eventually(
        async () => {
          const context = fakeContext({ env: temporalEnvironment() });
          expect(await printLiveCandidates(context, parsedCommand({}, [kind, words]))).toBe(0);
          return context.out() || undefined;
        },
        { what: `a ${kind}` },
      );
    expect(await printed('worker', 'stop', '--fleet', fleet)).toBe('alpha-1\tready, 1 of 4 slots taken\n');
    expect(await printed('session', 'move', `--fleet=${fleet}`, '--address', temporalAddress())).toBe(
      `${session}\ton alpha-1, ${workflowId}\n`,
    );
    await handle.terminate();
  });

  it('gives up a server that does not answer after two seconds or so', async () => {
    const silent = await listenSilently();
    const startedMs = performance.now();
    // In this process, for a machine that takes seconds to start one. Connecting would take much longer.
    const context = fakeContext({ env: temporalEnvironment() });
    const words = ['--address', `127.0.0.1:${silent.port}`];
    expect(await printLiveCandidates(context, parsedCommand({}, ['worker', words]))).toBe(0);
    expect(context.out()).toBe('');
    expect(performance.now() - startedMs).toBeLessThan(DEFAULT_CONNECT_TIMEOUT_MS * 0.8);
    silent.server.close();
  });

  it('prints nothing and ends with 0 whatever is wrong', async () => {
    const silent = await listenSilently();
    const lines = [
      [],
      ['nonsense'],
      ['worker', '--', '--fleet', 'Not-A-Fleet'],
      ['worker', '--', '--address', 'not an address'],
      ['session', '--', '--profile', 'no-such-profile'],
      ['worker', '--', '--address', '127.0.0.1:1'],
      ['worker', '--', '--address', `127.0.0.1:${silent.port}`],
      ['worker', '--', '--address'],
    ];
    for (const line of lines) {
      const fleet = { ATLAS_FLEET: uniqueFleet() };
      expect({ line, ...(await runAtlas(['__complete', ...line], { env: fleet })) }).toEqual({
        ...{ line, exit: 0, stdout: '', stderr: '' },
      });
    }
    silent.server.close();
  });
});

/** A port that takes connections and never says a word. */
async function listenSilently(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer((socket) => socket.on('error', () => undefined));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}
