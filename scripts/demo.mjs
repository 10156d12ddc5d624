/**
 * `npm run demo`: makes the clone ready and processes the sample document on a server and a worker of its own. Further
 * arguments go to `atlas run`.
 */
import { ensure } from './ensure.mjs';
import { main, run } from './lib.mjs';

await main(async () => {
  await ensure();
  return await run(process.execPath, [
    'bin/atlas.js',
    'run',
    'process-document',
    'examples/sample.pdf',
    '--dev',
    ...process.argv.slice(2),
  ]);
});
