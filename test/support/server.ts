/** The test run's Temporal server, and servers of a test's own. */
import { afterAll, beforeAll, inject } from 'vitest';
import type { Client } from '@temporalio/client';
import { connectClient, plainProfile, type TemporalClient } from '../../src/temporal/connect.js';
import { startDevServer, type DevServer, type DevServerOptions } from '../../src/temporal/dev-server.js';

/** A guard against hanging, on a machine that runs many tests at once. */
const CONNECT_TIMEOUT_MS = 30_000;

/** The address of the server that the whole run shares. */
export function temporalAddress(): string {
  return inject('temporalAddress');
}

/** The environment of a program that shall use that server and no profile of the person who runs the tests. */
export function temporalEnvironment(address: string = temporalAddress()): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !/^(TEMPORAL|ATLAS)_/.test(name));
  return {
    ...Object.fromEntries(inherited),
    TEMPORAL_ADDRESS: address,
    TEMPORAL_NAMESPACE: 'default',
    // A file that does not exist: a profile with TLS would otherwise apply to this address too.
    TEMPORAL_CONFIG_FILE: '/nonexistent/temporal.toml',
    ...(process.env['ATLAS_CACHE_DIR'] === undefined ? {} : { ATLAS_CACHE_DIR: process.env['ATLAS_CACHE_DIR'] }),
  };
}

/** A client of the shared server, or of another. The caller closes it. */
export async function connectTestClient(address: string = temporalAddress()): Promise<TemporalClient> {
  return await connectClient(plainProfile(address), { connectTimeoutMs: CONNECT_TIMEOUT_MS });
}

/** One client of the shared server for all tests of a file; call at the top and use the result inside tests. */
export function useClient(): () => Client {
  let connected: TemporalClient | undefined;
  beforeAll(async () => {
    connected = await connectTestClient();
  });
  afterAll(async () => {
    await connected?.close();
  });
  return () => {
    if (connected === undefined) throw new Error('useClient() gives its client only inside tests.');
    return connected.client;
  };
}

/** A server that a test may cut off, freeze or kill. The caller stops it. */
export async function startPrivateServer(options: Partial<DevServerOptions> = {}): Promise<DevServer> {
  return await startDevServer({ env: process.env, program: inject('temporalProgram'), ...options });
}
