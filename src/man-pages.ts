/**
 * The man pages of both programs. At the top of the tree because it knows both, as only the two programs themselves may.
 */
import { ATLAS } from './atlas.js';
import { ATLASD } from './atlasd.js';
import { programPages, type ManPage } from './commands/man.js';
import { configPage } from './daemon/config-page.js';

export const MAN_PAGES: readonly ManPage[] = [
  ...programPages(ATLAS, { section: 1, seeAlso: ['atlasd(8)', 'atlas.toml(5)', 'temporal(1)'] }),
  ...programPages(ATLASD, { section: 8, seeAlso: ['atlas(1)', 'atlas.toml(5)'] }),
  configPage(),
];
