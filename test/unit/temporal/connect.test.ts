import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { AtlasError } from '../../../src/contract/errors.js';
import {
  connectClient,
  connectNative,
  isUnavailable,
  loadProfile,
  plainProfile,
  toServerError,
} from '../../../src/temporal/connect.js';

let root: string;
let file: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'at-'));
  file = join(root, 'temporal.toml');
  await writeFile(
    file,
    `[profile.default]
address = "default.example:7233"
[profile.prod]
address = "prod.example:7233"
namespace = "orders"
api_key = "secret"
[profile.prod.grpc_meta]
region = "north"
[profile.certificate.tls]
client_cert_path = "${root}/missing.pem"
client_key_path = "${root}/missing.key"
`,
  );
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

describe('loadProfile', () => {
  const none = { TEMPORAL_CONFIG_FILE: '/nonexistent/temporal.toml' };

  it('has a default', async () => {
    expect(await loadProfile(none)).toMatchObject({
      address: 'localhost:7233',
      namespace: 'default',
      tls: false,
      addressSource: 'default',
    });
  });

  it('takes flag over variable over profile', async () => {
    const env = { TEMPORAL_CONFIG_FILE: file, TEMPORAL_PROFILE: 'prod' };
    expect(await loadProfile(env)).toMatchObject({
      address: 'prod.example:7233',
      namespace: 'orders',
      apiKey: 'secret',
      // A key is never sent in the clear.
      tls: true,
      metadata: { region: 'north' },
      addressSource: 'profile',
      addressOrigin: `the profile "prod" in ${file}`,
    });
    expect(await loadProfile({ ...env, TEMPORAL_ADDRESS: 'variable:1' })).toMatchObject({
      address: 'variable:1',
      namespace: 'orders',
      addressSource: 'environment',
    });
    expect(
      await loadProfile({ ...env, TEMPORAL_ADDRESS: 'variable:1' }, { address: 'flag:2', namespace: 'other' }),
    ).toMatchObject({ address: 'flag:2', namespace: 'other', addressSource: 'flag' });
    expect(await loadProfile(env, { profile: 'default' })).toMatchObject({ address: 'default.example:7233' });
  });

  it('takes an empty variable for none', async () => {
    expect(await loadProfile({ ...none, TEMPORAL_ADDRESS: '', TEMPORAL_NAMESPACE: '' })).toMatchObject({
      address: 'localhost:7233',
      namespace: 'default',
    });
  });

  it('takes an empty file for none', async () => {
    expect(await loadProfile({ TEMPORAL_CONFIG_FILE: '/dev/null' })).toMatchObject({ address: 'localhost:7233' });
  });

  it('adds the usual port, also to IPv6', async () => {
    expect((await loadProfile(none, { address: 'host' })).address).toBe('host:7233');
    expect((await loadProfile(none, { address: '[::1]' })).address).toBe('[::1]:7233');
  });

  it.each([
    ['a file that is not TOML', async () => writeFile(file, 'profile = = 1'), {}],
    ['a profile that is not there', async () => undefined, { profile: 'nope' }],
    ['a certificate that can not be read', async () => undefined, { profile: 'certificate' }],
    ['an address with a scheme', async () => undefined, { address: 'https://host:7233' }],
    ['an address with a wrong port', async () => undefined, { address: 'host:99999' }],
  ])('refuses %s', async (_, prepare, overrides) => {
    await prepare();
    const error = await loadProfile({ TEMPORAL_CONFIG_FILE: file }, overrides).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'ConfigInvalid' });
  });
});

/** Accepts connections and says nothing, as a frozen server or one that waits for TLS does. */
async function silentServer(): Promise<string> {
  const server: Server = createServer((socket) => socket.on('error', () => undefined));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  onTestFinished(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return `127.0.0.1:${address.port}`;
}

describe('connecting', () => {
  // Port 1 is reserved and nobody listens there.
  const env = { TEMPORAL_CONFIG_FILE: '/nonexistent/temporal.toml', TEMPORAL_ADDRESS: '127.0.0.1:1' };

  it.each([
    ['connectClient', connectClient],
    ['connectNative', connectNative],
  ])('%s tells at once that nobody listens, and where the address came from', async (_, connect) => {
    const startMs = Date.now();
    const connectTimeoutMs = 90_000;
    const error: unknown = await connect(await loadProfile(env), { connectTimeoutMs }).catch(
      (thrown: unknown) => thrown,
    );
    if (!(error instanceof AtlasError)) throw error;
    expect(error.code).toBe('ServerUnreachable');
    expect(error.message).toContain('127.0.0.1:1 (from TEMPORAL_ADDRESS)');
    expect(error.message).toContain('nothing listens there');
    expect(error.next).toContain('TEMPORAL_ADDRESS');
    expect(error.next).toContain('`atlas dev`');
    expect(Date.now() - startMs).toBeLessThan(connectTimeoutMs / 2);
    expect(isUnavailable(error)).toBe(true);
  });

  it.each([
    ['connectClient', connectClient],
    ['connectNative', connectNative],
  ])('%s does not wait for ever for a server that says nothing', async (_, connect) => {
    const profile = plainProfile(await silentServer());
    await expect(connect(profile, { connectTimeoutMs: 700 })).rejects.toMatchObject({
      code: 'ServerUnreachable',
      message: expect.stringContaining('TEMPORAL_TLS=true') as string,
    });
  });
});

describe('isUnavailable', () => {
  const coded = (code: number | string, message = 'text'): Error => Object.assign(new Error(message), { code });

  it('sees an outage through causes', () => {
    for (const error of [
      coded(14),
      coded(4),
      coded('ECONNRESET'),
      new Error('outer', { cause: coded(14) }),
      coded(13, 'Received RST_STREAM with code 2'),
      new AtlasError('ServerUnreachable', 'away'),
    ]) {
      expect(isUnavailable(error)).toBe(true);
    }
  });

  it('sees no outage in an answer', () => {
    for (const error of [coded(5), coded(7), coded(16), coded(3), new Error('plain'), undefined, 'text']) {
      expect(isUnavailable(error)).toBe(false);
    }
    const failed = Object.assign(new Error('failed', { cause: coded(14) }), { name: 'WorkflowFailedError' });
    expect(isUnavailable(failed)).toBe(false);
  });

  it('ends with causes that go round in circles', () => {
    const first = new Error('first');
    first.cause = new Error('second', { cause: first });
    expect(isUnavailable(first)).toBe(false);
  });
});

describe('toServerError', () => {
  const profile = plainProfile('127.0.0.1:7233', 'orders');
  const coded = (code: number, details: string): Error =>
    new Error('outer', { cause: Object.assign(new Error(`${code} ${details}`), { code, details }) });

  it('tells refusals, outages and everything else apart', () => {
    expect(toServerError(coded(7, 'Request unauthorized.'), profile)).toMatchObject({ code: 'ServerRefused' });
    expect(toServerError(coded(16, 'invalid key'), profile)?.message).toContain('invalid key');
    expect(toServerError(coded(5, 'Namespace orders is not found.'), profile)).toMatchObject({ code: 'ServerRefused' });
    expect(toServerError(coded(14, 'Connection dropped'), profile)).toMatchObject({ code: 'ServerUnreachable' });
    expect(toServerError(coded(5, 'workflow not found for ID: a'), profile)).toBeUndefined();
  });
});
