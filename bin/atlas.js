#!/usr/bin/env node
// Runs dist/atlas.js and exits with its code. `process.exit` and not `process.exitCode`: a connection that is still
// closing must not keep a finished command alive; main() has flushed its output by then.
import { existsSync } from 'node:fs';

const entry = new URL('../dist/atlas.js', import.meta.url);
if (!existsSync(entry)) {
  console.error('error: Atlas is not built: dist/atlas.js is missing.\n next: Run `npm run build`.');
  process.exit(1);
}
const { main } = await import(entry.href);
process.exit(await main(process.argv.slice(2)));
