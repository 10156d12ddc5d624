/**
 * The man pages of both programs. At the top of the tree because it knows both, as only the two programs themselves may.
 */
import { ATLAS } from './atlas.js';
import { ATLASD } from './atlasd.js';
import { manPage, type ManPage } from './commands/man.js';

export const MAN_PAGES: readonly ManPage[] = [
  manPage(ATLAS, { section: 1, seeAlso: ['atlasd(8)', 'temporal(1)'] }),
  manPage(ATLASD, { section: 8, seeAlso: ['atlas(1)'] }),
];
