/**
 * Writes man/ from the command specifications of the built program, and the list of its pages into package.json:
 * `npm run build && node scripts/make-man.mjs`. Pages of commands that are gone are removed.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

const root = new URL('../', import.meta.url);
const { MAN_PAGES } = await import(new URL('dist/man-pages.js', root).href);
const fileNames = MAN_PAGES.map((page) => page.fileName);

mkdirSync(new URL('man/', root), { recursive: true });
for (const name of readdirSync(new URL('man/', root))) {
  if (fileNames.includes(name)) continue;
  rmSync(new URL(`man/${name}`, root));
  console.log(`man/${name} removed`);
}
for (const page of MAN_PAGES) {
  writeFileSync(new URL(`man/${page.fileName}`, root), page.text);
  console.log(`man/${page.fileName}`);
}

const packageFile = new URL('package.json', root);
const before = readFileSync(packageFile, 'utf8');
const after = JSON.stringify({ ...JSON.parse(before), man: fileNames.map((name) => `man/${name}`) }, null, 2);
if (`${after}\n` !== before) {
  writeFileSync(packageFile, `${after}\n`);
  console.log('package.json');
}
