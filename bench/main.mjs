/**
 * `npm run bench -- NAME [--runs N] [--json FILE]`: makes the clone ready and runs one measurement. Without a name, or
 * with one that does not exist, it lists them.
 *
 * A measurement is a file of this folder that exports `summary`, `defaultRuns`, `run({ runs, ...options })` and the
 * `options` that it takes beside those, and owns what is measured and how. Ends with 0 also when a target is missed, since a measurement that says so has worked, and with 1
 * when it could not measure.
 */
import { readdirSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { ensure } from '../scripts/ensure.mjs';
import { main, say, ScriptError } from '../scripts/lib.mjs';
import { machine, printTable } from './support/report.mjs';

const MAX_RUNS = 1_000;
/** The version of the JSON. */
const JSON_VERSION = 1;

await main(async () => {
  const { name, runs, json, given } = readArguments();
  const names = readdirSync(new URL('.', import.meta.url))
    .filter((file) => file.endsWith('.mjs') && file !== 'main.mjs')
    .map((file) => file.slice(0, -'.mjs'.length))
    .sort();
  if (name === undefined || !names.includes(name)) {
    if (name !== undefined) say(`There is no bench "${name}".`);
    say('Run `npm run bench -- NAME [--runs N] [--json FILE]` with one of:');
    for (const each of names) {
      const { summary, options = {} } = await import(`./${each}.mjs`);
      say(`  ${each}  ${summary}`);
      for (const [option, text] of Object.entries(options)) say(`    --${option} ${text}`);
    }
    return name === undefined ? 0 : 1;
  }
  const bench = await import(`./${name}.mjs`);
  const options = checkOptions(name, given, bench.options ?? {});
  await ensure();
  const startedAt = new Date().toISOString();
  const lines = await bench.run({ runs: runs ?? bench.defaultRuns, ...options });
  printTable(lines);
  if (json !== undefined) {
    const record = { version: JSON_VERSION, bench: name, startedAt, machine: machine(), lines };
    writeFileSync(resolve(json), `${JSON.stringify(record, null, 2)}\n`);
    say(`Written to ${json}.`);
  }
  return 0;
});

function readArguments() {
  let parsed;
  try {
    parsed = parseArgs({
      allowPositionals: true,
      options: {
        runs: { type: 'string' },
        json: { type: 'string' },
        only: { type: 'string' },
        peer: { type: 'string' },
        'peer-dir': { type: 'string' },
        workers: { type: 'string' },
        sessions: { type: 'string' },
        cores: { type: 'string' },
        file: { type: 'string' },
        truth: { type: 'string' },
        pages: { type: 'string' },
        'text-file': { type: 'string' },
      },
    });
  } catch (error) {
    throw new ScriptError(error.message);
  }
  const { runs: text, json, ...given } = parsed.values;
  const runs = text === undefined ? undefined : Number(text);
  if (runs !== undefined && !(Number.isInteger(runs) && runs >= 1 && runs <= MAX_RUNS)) {
    throw new ScriptError(`--runs takes a whole number from 1 to ${MAX_RUNS}.`);
  }
  if (parsed.positionals.length > 1) throw new ScriptError('One bench at a time.');
  return { name: parsed.positionals[0], runs, json, given };
}

function checkOptions(name, given, known) {
  for (const option of Object.keys(given)) {
    if (!Object.hasOwn(known, option)) throw new ScriptError(`The bench "${name}" takes no --${option}.`);
  }
  return given;
}
