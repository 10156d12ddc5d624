/**
 * `atlas run` as a person uses it: real processes of the command, of atlasd and of Temporal. What a run costs when
 * something dies in the middle of it, what Ctrl-C does at each point, and what is left afterwards: nothing.
 */
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startAtlasd, temporaryDirectory, type Atlasd, type AtlasdOptions } from '../support/atlasd.js';
import { runAtlas, spawnAtlas, type AtlasCommand, type AtlasOutcome } from '../support/cli.js';
import { closedPort, serveDocuments } from '../support/document-server.js';
import { eventually, sessionsOf, untilScratchIsEmpty, workersOf } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { makePdf } from '../support/pdf.js';
import { type FakePrograms, makeFakePrograms } from '../support/programs.js';
import { startPrivateServer, useClient } from '../support/server.js';

const SAMPLE = fileURLToPath(new URL('../../examples/sample.pdf', import.meta.url));
const ARTIFACTS = ['pages.jsonl', 'report.json', 'summary.md', 'text.txt'];
/** A worker whose recognition of pages lasts until the test lets it go on, so that it is met in the middle. */
async function heldPages(): Promise<{ programs: FakePrograms; options: Pick<AtlasdOptions, 'args' | 'env'> }> {
  const programs = await makeFakePrograms(await temporaryDirectory(), { holds: true });
  return { programs, options: { args: ['--document-ocr-engine', 'native'], env: { PATH: programs.path } } };
}

const RUN = ['run', 'process-document'];
/** For tests in which a whole run and more than one start of a program follow each other. */
const LONG_TEST_MS = 300_000;

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

/** The artifacts in a folder are whole, and are those that the worker keeps. */
async function expectArtifacts(folder: string, worker: Atlasd): Promise<void> {
  expect((await readdir(folder)).sort()).toEqual(ARTIFACTS);
  const kept = join(worker.stateDirectory, 'kept');
  const runs = await readdir(kept);
  expect(runs).toHaveLength(1);
  for (const name of ARTIFACTS) {
    const here = sha256(await readFile(join(folder, name)));
    expect(`${name} ${here}`).toBe(`${name} ${sha256(await readFile(join(kept, runs[0]!, name)))}`);
  }
}

/** The id of a run, from the first line of the command. */
async function idOf(command: AtlasCommand): Promise<string> {
  return (await command.line(/^Run /)).slice('Run '.length);
}

async function pagesRead(folder: string): Promise<string[]> {
  const text = await readFile(join(folder, 'pages.jsonl'), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { page: number; method: string })
    .map(({ page, method }) => `${page} ${method}`);
}

/** The name of a document without scans. */
const TEXT = 'notes.pdf';
const WHOLE_SAMPLE = ['1 text', '2 text', '3 ocr', '4 text', '5 ocr'];

describe('atlas run process-document', { timeout: LONG_TEST_MS }, () => {
  const client = useClient();

  /** No slot is taken and no working file is left on a worker. */
  async function expectNothingHeld(worker: Atlasd): Promise<void> {
    await eventually(async () => (await sessionsOf(client(), worker.fleet)).length === 0, {
      what: 'no session is held',
    });
    await untilScratchIsEmpty(worker);
  }

  async function statusOf(workflowId: string): Promise<string> {
    return (await client().workflow.getHandle(workflowId).describe()).status.name;
  }

  it('prints the summary on stdout and brings the artifacts that the worker keeps', async () => {
    const worker = await startAtlasd();
    const cwd = await temporaryDirectory();
    const outcome = await runAtlas([...RUN, SAMPLE, '--fleet', worker.fleet, '--output', 'here'], { cwd });

    expect(outcome).toMatchObject({ exit: 0 });
    expect(outcome.stdout).toMatch(/^\nDone in \S+ on worker-1\n/);
    expect(outcome.stdout).toContain('5 pages: 3 from the text layer, 2 by OCR');
    expect(outcome.stdout).toContain('Artifacts in ./here');
    // The commands that it proposes reach the same fleet.
    expect(outcome.stdout).toContain(`atlas workers ls --fleet ${worker.fleet}`);
    expect(outcome.stderr).toContain('Find a worker: worker-1');
    expect(outcome.stderr).not.toContain('error');
    await expectArtifacts(join(cwd, 'here'), worker);
    expect(await pagesRead(join(cwd, 'here'))).toEqual(WHOLE_SAMPLE);
    await expectNothingHeld(worker);
  });

  it('prints one JSON document and nothing else with -o json', async () => {
    const worker = await startAtlasd();
    const cwd = await temporaryDirectory();
    const { exit, stdout, stderr } = await runAtlas([...RUN, SAMPLE, '--fleet', worker.fleet, '-o', 'json'], { cwd });

    expect({ exit, stderr }).toEqual({ exit: 0, stderr: '' });
    const content = await readFile(SAMPLE);
    const { version, run } = JSON.parse(stdout) as { version: number; run: Record<string, unknown> };
    expect(version).toBe(1);
    expect(run).toMatchObject({
      name: 'sample.pdf',
      bytes: content.length,
      sha256: sha256(content),
      pages: { total: 5, text: 3, ocr: 2, failed: 0 },
      worker: 'worker-1',
      sessionAttempts: 1,
      delivered: true,
      bytesServed: content.length,
    });
    const folder = String(run['folder']);
    expect(folder.startsWith(join(cwd, 'atlas-artifacts', 'sample-'))).toBe(true);
    await expectArtifacts(folder, worker);
    expect(run['summary']).toBe(await readFile(join(folder, 'summary.md'), 'utf8'));
  });

  it('serves the file to a worker that can not see it, and to nobody without the token of the run', async () => {
    const fleet = uniqueFleet();
    const cwd = await temporaryDirectory();
    const file = join(cwd, 'mine.pdf');
    await copyFile(SAMPLE, file);
    const port = await closedPort();
    const command = await spawnAtlas(
      [...RUN, file, '--fleet', fleet, '--serve-address', `127.0.0.1:${port}`, '--output', 'out'],
      {
        cwd,
      },
    );
    await command.line(/^Run /);
    // Nothing but what the command serves is left of the document.
    await rm(file);
    const url = `http://127.0.0.1:${port}/file`;
    for (const headers of [{}, { authorization: 'Bearer wrong' }, { authorization: 'Basic eDp5' }]) {
      const answer = await fetch(url, { headers });
      expect(answer.status).toBe(401);
      expect(await answer.text()).not.toContain('%PDF');
    }
    const upload = await fetch(`http://127.0.0.1:${port}/artifacts/summary.md`, { method: 'PUT', body: 'forged' });
    expect(upload.status).toBe(401);

    const worker = await startAtlasd({ fleet });
    expect(await command.exited).toMatchObject({ exit: 0 });
    await expectArtifacts(join(cwd, 'out'), worker);
    expect(await pagesRead(join(cwd, 'out'))).toEqual(WHOLE_SAMPLE);
    await expect(fetch(url)).rejects.toThrow();
  });

  it('has the worker fetch an address that its configuration allows', async () => {
    const worker = await startAtlasd({ args: ['--document-allow-urls', '127.0.0.0/8'] });
    const base = await serveDocuments({ 'report.pdf': await readFile(SAMPLE) });
    const cwd = await temporaryDirectory();
    const argv = [...RUN, `${base}/report.pdf`, '--fleet', worker.fleet, '--output', 'out', '-o', 'json'];
    const { exit, stdout } = await runAtlas(argv, { cwd });
    expect(exit).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ run: { name: 'report.pdf', bytesServed: 0, pages: { total: 5 } } });
    await expectArtifacts(join(cwd, 'out'), worker);
  });

  it('has the worker read a file of its own disk under a directory that its configuration lists', async () => {
    const directory = await temporaryDirectory();
    await copyFile(SAMPLE, join(directory, 'report.pdf'));
    const worker = await startAtlasd({ args: ['--document-allow-files', directory] });
    const cwd = await temporaryDirectory();
    const argv = [...RUN, `file://${directory}/report.pdf`, '--fleet', worker.fleet, '--output', 'out', '-o', 'json'];
    const { exit, stdout } = await runAtlas(argv, { cwd });
    expect(exit).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ run: { name: 'report.pdf', bytesServed: 0, pages: { total: 5 } } });
    await expectArtifacts(join(cwd, 'out'), worker);
  });

  describe('with --deliver-to', () => {
    it('has the worker put the artifacts into a new folder of a directory that its configuration lists', async () => {
      const results = await temporaryDirectory();
      const worker = await startAtlasd({ args: ['--document-allow-output', results] });
      const cwd = await temporaryDirectory();
      const argv = [...RUN, TEXT, '--fleet', worker.fleet, '--deliver-to', results];
      await writeFile(join(cwd, TEXT), makePdf([['The harbour has forty berths.']]));

      const text = await runAtlas(argv, { cwd });
      expect(text, text.stderr).toMatchObject({ exit: 0 });
      const [first, ...others] = await readdir(results);
      expect({ first, others }).toMatchObject({
        first: expect.stringMatching(/^notes-[0-9a-f]{8}$/) as string,
        others: [],
      });
      expect(text.stdout).toContain(`\nArtifacts in ${join(results, first ?? '')} on worker-1\n  pages.jsonl `);
      expect(text.stderr).toContain('Deliver: done');
      await expectArtifacts(join(results, first ?? ''), worker);

      const both = await runAtlas([...argv, '--output', 'out', '-o', 'json'], { cwd });
      const { run } = JSON.parse(both.stdout) as { run: Record<string, unknown> };
      expect(run).toMatchObject({ folder: join(cwd, 'out'), delivered: true, summary: expect.any(String) as string });
      const directory = String(run['directory']);
      expect(await readdir(directory)).toHaveLength(ARTIFACTS.length);
      expect((await readdir(join(cwd, 'out'))).sort()).toEqual(ARTIFACTS);

      const only = await runAtlas([...argv, '-o', 'json'], { cwd });
      expect(JSON.parse(only.stdout)).toMatchObject({
        run: { folder: null, delivered: false, summary: null, directory: expect.stringContaining(results) as string },
      });
      expect((await readdir(cwd)).sort()).toEqual(['notes.pdf', 'out']);
      expect(await readdir(results)).toHaveLength(3);
    });
  });

  it('refuses a file that is not the one which was named', async () => {
    const fleet = uniqueFleet();
    const directory = await temporaryDirectory();
    const file = join(directory, 'report.pdf');
    const content = await readFile(SAMPLE);
    await writeFile(file, content);
    const cwd = await temporaryDirectory();
    const command = await spawnAtlas([...RUN, `file://${file}`, '--fleet', fleet], { cwd });
    await command.line(/^Run /);
    // The same length: only the hash tells.
    const changed = Buffer.from(content);
    changed[content.length - 100]! ^= 1;
    await writeFile(file, changed);
    const worker = await startAtlasd({ fleet, args: ['--document-allow-files', directory] });
    const { exit, stdout, stderr } = await command.exited;
    expect({ exit, stdout }).toEqual({ exit: 8, stdout: '' });
    expect(stderr).toMatch(/^error: The job failed at downloadDocument.*report\.pdf has sha256 .* was announced/m);
    expect(stderr).toMatch(/^ next: Run again with the file as it is now\.$/m);
    expect(await readdir(cwd)).toEqual([]);
    await expectNothingHeld(worker);
  });

  describe('at Ctrl-C', () => {
    it('cancels a run that no worker has looked at, although nobody is there to act on it', async () => {
      const cwd = await temporaryDirectory();
      const command = await spawnAtlas([...RUN, SAMPLE, '--fleet', uniqueFleet()], { cwd });
      const id = await idOf(command);
      await command.line(/No worker of the fleet "\w+" has taken the run yet\. .*atlasd --fleet/);
      command.interrupt();
      const { exit, stdout, stderr } = await command.exited;
      expect({ exit, stdout }).toEqual({ exit: 130, stdout: '' });
      expect(stderr).toContain('The run was cancelled; nothing of it is left on a worker.');
      expect(await statusOf(id)).toBe('TERMINATED');
      expect(await readdir(cwd)).toEqual([]);
    });

    it('cancels a run that waits for a slot', async () => {
      const worker = await startAtlasd();
      const cwd = await temporaryDirectory();
      const argv = [...RUN, SAMPLE, '--fleet', worker.fleet, '--capabilities', 'gpu'];
      const command = await spawnAtlas(argv, { cwd });
      const id = await idOf(command);
      // It has begun: it asks for a session that no worker can give.
      await eventually(
        async () => {
          const { raw } = await client().workflow.getHandle(id).describe();
          return (raw.pendingActivities ?? []).length > 0;
        },
        { what: 'it asks for a session' },
      );
      command.interrupt();
      expect(await command.exited).toMatchObject({ exit: 130, stdout: '' });
      expect(await statusOf(id)).toBe('CANCELLED');
      expect(await readdir(cwd)).toEqual([]);
      await expectNothingHeld(worker);
    });

    it('detaches from a run whose document is on the worker, and --attach fetches its artifacts, also twice', async () => {
      const { programs, options } = await heldPages();
      const worker = await startAtlasd(options);
      const cwd = await temporaryDirectory();
      const command = await spawnAtlas([...RUN, SAMPLE, '--fleet', worker.fleet, '--output', 'first'], { cwd });
      const id = await idOf(command);
      await command.line(/Read pages: running/);
      command.interrupt();
      const { exit, stdout, stderr } = await command.exited;
      expect({ exit, stdout }).toEqual({ exit: 130, stdout: '' });
      expect(stderr).toContain('Interrupted at "Read pages". The run continues on worker-1, which keeps the artifacts');
      expect(stderr).not.toContain('error');
      expect(await readdir(cwd)).toEqual([]);

      // The command as it was printed, less the name of the program.
      const printed = new RegExp(`\`atlas (run --attach ${id} --fleet ${worker.fleet})\``).exec(stderr)?.[1];
      expect(printed).toBeDefined();
      const attach = (printed ?? '').split(' ');
      const attaching = await spawnAtlas([...attach, '--output', 'attached'], { cwd });
      await attaching.line(/Read pages: running/);
      await programs.letGo();
      const attached = await attaching.exited;
      expect(attached).toMatchObject({ exit: 0 });
      expect(attached.stdout).toContain('5 pages: 3 from the text layer, 2 by OCR (native).');
      await expectArtifacts(join(cwd, 'attached'), worker);

      const again = await runAtlas([...attach, '--output', 'again', '-o', 'json'], { cwd });
      expect(again).toMatchObject({ exit: 0, stderr: '' });
      expect(JSON.parse(again.stdout)).toMatchObject({
        run: { workflowId: id, pages: { total: 5 }, durationMs: null },
      });
      await expectArtifacts(join(cwd, 'again'), worker);
      await expectNothingHeld(worker);
    });

    it('ends an attached command without the run', async () => {
      const { programs, options } = await heldPages();
      const worker = await startAtlasd(options);
      const first = await spawnAtlas([...RUN, SAMPLE, '--fleet', worker.fleet]);
      const id = await idOf(first);
      const second = await spawnAtlas(['run', '--attach', id, '--fleet', worker.fleet]);
      await second.line(/Read pages: running/);
      second.interrupt();
      expect(await second.exited).toMatchObject({ exit: 130, stdout: '' });
      await programs.letGo();
      expect(await first.exited).toMatchObject({ exit: 0 });
    });
  });

  /** How the workflows ended by which a run's artifacts were asked for. */
  async function deliveriesOf(id: string): Promise<string[]> {
    const query = `WorkflowId STARTS_WITH '${id}:deliver-'`;
    return await eventually(
      async () => {
        const found: string[] = [];
        for await (const { status } of client().workflow.list({ query })) found.push(status.name);
        return found.length > 0 && !found.includes('RUNNING') ? found : undefined;
      },
      { what: 'the request for the artifacts has ended' },
    );
  }

  it('says so when there is no run with the id of --attach', async () => {
    const cwd = await temporaryDirectory();
    const { exit, stdout, stderr } = await runAtlas(['run', '--attach', 'document-nope'], { cwd });
    expect({ exit, stdout }).toEqual({ exit: 4, stdout: '' });
    expect(stderr).toMatch(/^error: There is no run with the id document-nope in this namespace\.\n next: \S.*\n$/);
    expect(await readdir(cwd)).toEqual([]);
  });

  it('says where the artifacts are when their worker is gone', async () => {
    const worker = await startAtlasd();
    const command = await spawnAtlas([...RUN, SAMPLE, '--fleet', worker.fleet]);
    const id = await idOf(command);
    expect(await command.exited).toMatchObject({ exit: 0 });
    const other = await startAtlasd({ fleet: worker.fleet, name: 'other' });
    await worker.stop();
    await eventually(async () => (await workersOf(client(), worker.fleet)).some(({ state }) => state === 'stopped'), {
      what: 'the fleet knows that it has stopped',
    });
    const cwd = await temporaryDirectory();
    const { exit, stderr } = await runAtlas(['run', '--attach', id, '--fleet', other.fleet], { cwd });
    expect(exit).toBe(4);
    expect(stderr).toMatch(/^Waiting for worker-1, which keeps the artifacts and has stopped$/m);
    expect(stderr).toMatch(/^error: Worker worker-1, which keeps the artifacts, has stopped\.$/m);
    expect(stderr).toMatch(/^ next: Start worker worker-1 again and run `atlas run --attach/m);
    expect(await deliveriesOf(id)).toEqual(['TERMINATED']);
    expect(await readdir(cwd)).toEqual([]);
  });

  it('rides out an outage of Temporal while pages are read', async () => {
    const dbFilename = join(await temporaryDirectory(), 'temporal.db');
    const server = await startPrivateServer({ dbFilename });
    onTestFinished(() => server.stop());
    const { address } = server;
    const { programs, options } = await heldPages();
    const worker = await startAtlasd({ address, ...options });
    const cwd = await temporaryDirectory();
    const argv = [...RUN, SAMPLE, '--fleet', worker.fleet, '--lease-ttl', '3m', '--output', 'out'];
    const command = await spawnAtlas(argv, { cwd, address });
    await command.line(/Read pages: running/);
    await server.stop();
    await command.line(/Temporal does not answer; waiting for it to come back/);
    const again = await startPrivateServer({ dbFilename, port: Number(address.split(':')[1]) });
    onTestFinished(() => again.stop());
    await command.line(/Temporal answers again after/);
    await programs.letGo();
    const outcome = await command.exited;
    expect(outcome).toMatchObject({ exit: 0 });
    expect(outcome.stdout).toMatch(/^\nDone in \S+ on worker-1\n/);
    await expectArtifacts(join(cwd, 'out'), worker);
  });

  it('tells of a worker that was lost, and ends with the work of another', async () => {
    const fleet = uniqueFleet();
    const workers = new Map<string, Atlasd>();
    const { programs, options } = await heldPages();
    for (const name of ['a', 'b']) workers.set(name, await startAtlasd({ fleet, name, ...options }));
    const cwd = await temporaryDirectory();
    const command = await spawnAtlas([...RUN, SAMPLE, '--fleet', fleet, '--lease-ttl', '6s', '--output', 'out'], {
      cwd,
    });
    const found = await command.line(/Find a worker: [ab] /);
    const dead = /Find a worker: ([ab]) /.exec(found)![1]!;
    await command.line(/Read pages: running/);
    await workers.get(dead)!.killAll();
    await command.line(/The worker was lost; the sequence is done again from its start/);
    await programs.letGo();
    const outcome = await command.exited;
    const other = dead === 'a' ? 'b' : 'a';
    expect(outcome).toMatchObject({ exit: 0 });
    expect(outcome.stdout).toMatch(
      new RegExp(`^\\nDone in \\S+ on ${other}, begun 2 times since a worker was lost\\n`),
    );
    await expectArtifacts(join(cwd, 'out'), workers.get(other)!);
  });
});

describe('the OCR engine of a worker', { timeout: LONG_TEST_MS }, () => {
  async function engineOf(env: NodeJS.ProcessEnv): Promise<{ outcome: AtlasOutcome; engine: unknown }> {
    const worker = await startAtlasd({ args: ['--document-ocr-engine', 'auto'], env });
    const cwd = await temporaryDirectory();
    const outcome = await runAtlas([...RUN, SAMPLE, '--fleet', worker.fleet, '--output', 'out'], { cwd });
    expect(outcome).toMatchObject({ exit: 0 });
    expect(await pagesRead(join(cwd, 'out'))).toEqual(WHOLE_SAMPLE);
    const report = JSON.parse(await readFile(join(cwd, 'out', 'report.json'), 'utf8')) as Record<string, unknown>;
    return { outcome, engine: report['engine'] };
  }

  it('comes from npm alone on a host without poppler and tesseract', async () => {
    const empty = await temporaryDirectory();
    const { outcome, engine } = await engineOf({ PATH: empty });
    expect(engine).toBe('npm');
    expect(outcome.stdout).toContain('2 by OCR (npm)');
  });

  const missing = ['tesseract', 'pdftoppm'].filter((tool) => !isInstalled(tool));
  const reason = missing.length === 0 ? '' : ` (${missing.join(' and ')} not installed)`;
  it.skipIf(missing.length > 0)(`is the installed one where there is one${reason}`, async () => {
    const { outcome, engine } = await engineOf({});
    expect(engine).toBe('native');
    expect(outcome.stdout).toContain('2 by OCR (native)');
  });
});

function isInstalled(tool: string): boolean {
  try {
    execFileSync(tool, ['-v'], { stdio: 'ignore' });
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}

describe('atlas run --dev', { timeout: LONG_TEST_MS }, () => {
  /** With a wrong address in the environment: `--dev` uses its own server whatever is configured. */
  async function dev(cwd: string): Promise<{ command: AtlasCommand; temporary: string }> {
    const temporary = join(cwd, 'tmp');
    await mkdir(temporary);
    const command = await spawnAtlas([...RUN, SAMPLE, '--dev', '--output', 'out'], {
      cwd,
      address: '127.0.0.1:1',
      env: { TMPDIR: temporary, ATLAS_DOCUMENT_OCR_ENGINE: 'npm' },
    });
    return { command, temporary };
  }

  async function expectNothingLeft(command: AtlasCommand, temporary: string): Promise<void> {
    expect(await command.leftovers()).toEqual([]);
    expect(await readdir(temporary)).toEqual([]);
    const port = Number(/starting server \S+ at 127\.0\.0\.1:(\d+)/.exec(command.stderr)![1]);
    expect(await listens(port)).toBe(false);
  }

  it('does everything by itself and leaves nothing but the artifacts', async () => {
    const cwd = await temporaryDirectory();
    const { command, temporary } = await dev(cwd);
    const { exit, stdout } = await command.exited;
    expect(exit).toBe(0);
    expect(stdout).toContain('5 pages: 3 from the text layer, 2 by OCR');
    expect(stdout).toContain('The server and the worker of this run have ended with it.');
    expect((await readdir(join(cwd, 'out'))).sort()).toEqual(ARTIFACTS);
    await expectNothingLeft(command, temporary);
  });

  it.each([
    ['while the worker starts', /starting a worker/],
    ['while pages are read', /Read pages: running/],
  ])('leaves nothing at Ctrl-C %s', async (_, moment) => {
    const cwd = await temporaryDirectory();
    const { command, temporary } = await dev(cwd);
    await command.line(moment);
    command.interrupt();
    const { exit, stdout, stderr } = await command.exited;
    expect({ exit, stdout }).toEqual({ exit: 130, stdout: '' });
    expect(stderr).not.toContain('error');
    expect(await readdir(cwd)).toEqual(['tmp']);
    await expectNothingLeft(command, temporary);
  });
});

async function listens(port: number): Promise<boolean> {
  return await new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
