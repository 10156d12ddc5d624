/**
 * What measurements on a real server have in common: which of their parts are run, and a server, a client and programs that
 * are all ended in the end, also when the measurement is interrupted.
 */
import { say, ScriptError } from '../../scripts/lib.mjs';
import { endAtSignal, Programs } from './programs.mjs';

/** The names of the parts to run: those that were asked for, separated by commas, or all. */
export function partsOf(only, known) {
  const parts = only === undefined ? Object.keys(known) : only.split(',');
  for (const part of parts) if (!Object.hasOwn(known, part)) throw new ScriptError(`There is no part "${part}".`);
  return parts;
}

/** @param onInterrupt Called at SIGINT or SIGTERM, before everything is ended. */
export async function withServer(use, { onInterrupt } = {}) {
  const { startDevServer } = await import('../../dist/temporal/dev-server.js');
  const { connectClient, plainProfile } = await import('../../dist/temporal/connect.js');
  const server = await startDevServer({
    env: process.env,
    onStep: ({ step, state, detail }) => {
      if (state !== 'trying' || step === 'start') say(`Temporal server: ${step}: ${state} ${detail}`);
    },
  });
  const programs = new Programs(server.address);
  const interrupted = endAtSignal(() => {
    onInterrupt?.();
    return programs.stopAll().finally(() => server.stop());
  });
  let temporal;
  try {
    temporal = await connectClient(plainProfile(server.address));
    return await use({ temporal, client: temporal.client, server, programs });
  } finally {
    interrupted.forget();
    await temporal?.close();
    await programs.stopAll();
    await server.stop();
  }
}
