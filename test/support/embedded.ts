/** Programs that hold sessions in their own process, by the plugin, started as atlasd is elsewhere. */
import { fileURLToPath } from 'node:url';
import type { Atlasd, AtlasdOptions } from './atlasd.js';
import { spawnWorker } from './fixtures.js';

export const EMBEDDED_PROGRAM = fileURLToPath(new URL('../fixtures/embedded-worker.mjs', import.meta.url));

export async function spawnEmbedded(options: AtlasdOptions): Promise<Atlasd> {
  return await spawnWorker({ ...options, program: EMBEDDED_PROGRAM });
}

export async function startEmbedded(options: AtlasdOptions): Promise<Atlasd> {
  return await (await spawnEmbedded(options)).ready();
}

/** The same program again, as its service manager starts it. */
export async function restartEmbedded(
  { fleet, name, stateDirectory, address }: Atlasd,
  options: Pick<AtlasdOptions, 'args'> = {},
): Promise<Atlasd> {
  return await startEmbedded({ fleet, name, stateDirectory, address, ...options });
}
