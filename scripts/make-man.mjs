/** Writes man/ from the command specifications of the built program: `npm run build && node scripts/make-man.mjs`. */
import { mkdirSync, writeFileSync } from 'node:fs';

const root = new URL('../', import.meta.url);
const { MAN_PAGES } = await import(new URL('dist/man-pages.js', root).href);
mkdirSync(new URL('man/', root), { recursive: true });
for (const page of MAN_PAGES) {
  writeFileSync(new URL(`man/${page.fileName}`, root), page.text);
  console.log(`man/${page.fileName}`);
}
