/**
 * Connections to Temporal: which server, with which credentials, and what a failure means.
 *
 * Owns reading the profile (the same files and `TEMPORAL_*` variables as Temporal's own command), the bounds of a
 * connection and the mapping of its errors to the catalogue. Loads the Temporal packages only when they are used.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { connect as connectTcp, isIP } from 'node:net';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { connect as connectTls, type ConnectionOptions as TlsOptions } from 'node:tls';
import type { Client, Connection, ConnectionOptions } from '@temporalio/client';
import type { ClientConnectConfig } from '@temporalio/envconfig';
import type { NativeConnection, NativeConnectionOptions } from '@temporalio/worker';
import { AtlasError } from '../contract/errors.js';
import { inTime } from '../contract/in-time.js';

export const DEFAULT_ADDRESS = 'localhost:7233';
export const DEFAULT_NAMESPACE = 'default';
/** How long the first connection may take: a person waits for it. */
export const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
/**
 * gRPC's own backoff grows to 15 s and more, which is how much later than the server a client comes back after an
 * outage: long enough for a lease to time out. A second is still gentle on a server that is starting.
 */
export const MAX_RECONNECT_BACKOFF_MS = 1_000;
const INITIAL_RECONNECT_BACKOFF_MS = 100;
/** The bound on looking for the reason of a failed connection. */
const DIAGNOSIS_TIMEOUT_MS = 1_000;

export type AddressSource = 'flag' | 'environment' | 'profile' | 'default';

export interface ProfileOverrides {
  readonly address?: string | undefined;
  readonly namespace?: string | undefined;
  /** The name of the profile in the file; over `TEMPORAL_PROFILE`. */
  readonly profile?: string | undefined;
}

type NativeTls = NonNullable<NativeConnectionOptions['tls']>;

/** Everything needed to connect. Holds secrets: never log it whole. */
export interface ConnectionProfile {
  /** `host:port`. */
  readonly address: string;
  readonly namespace: string;
  readonly tls: NativeTls;
  readonly apiKey?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly addressSource: AddressSource;
  /** For messages: `TEMPORAL_ADDRESS`, `the profile "prod" in /home/a/.config/temporalio/temporal.toml`. */
  readonly addressOrigin: string;
}

/**
 * Reads the connection profile.
 *
 * @throws {@link AtlasError} `ConfigInvalid` when the file can not be read, the profile is not in it, or a certificate
 * it names can not be read.
 */
export async function loadProfile(
  env: NodeJS.ProcessEnv,
  overrides: ProfileOverrides = {},
): Promise<ConnectionProfile> {
  const { loadClientConfigProfile, toClientOptions } = await import('@temporalio/envconfig');
  const variables = definedVariables(env);
  const file = variables['TEMPORAL_CONFIG_FILE'] ?? defaultConfigFile(variables) ?? 'no file';
  const profileName = overrides.profile ?? variables['TEMPORAL_PROFILE'];

  const load = (disableFile: boolean): ClientConnectConfig =>
    toClientOptions(
      loadClientConfigProfile({
        overrideEnvVars: variables,
        disableFile,
        ...(profileName === undefined ? {} : { profile: profileName }),
      }),
    );
  let options: ClientConnectConfig;
  try {
    options = load(profileName === undefined && (await hasNoProfile(file)));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new AtlasError('ConfigInvalid', `The Temporal connection profile can not be used (${file}): ${reason}`, {
      cause: error,
      next: `Correct ${file}, or the TEMPORAL_* variables, or choose another profile with TEMPORAL_PROFILE.`,
    });
  }

  const { address: loadedAddress, tls, apiKey, metadata } = options.connectionOptions;
  const addressSource: AddressSource =
    overrides.address !== undefined
      ? 'flag'
      : variables['TEMPORAL_ADDRESS'] !== undefined
        ? 'environment'
        : loadedAddress !== undefined
          ? 'profile'
          : 'default';
  const addressOrigin = {
    flag: '--address',
    environment: 'TEMPORAL_ADDRESS',
    profile: `the profile ${JSON.stringify(profileName ?? 'default')} in ${file}`,
    default: `the default, as neither TEMPORAL_ADDRESS nor a profile names one`,
  }[addressSource];

  return {
    address: checkAddress(overrides.address ?? loadedAddress ?? DEFAULT_ADDRESS, addressOrigin),
    namespace: overrides.namespace ?? options.namespace ?? DEFAULT_NAMESPACE,
    tls: tls ?? false,
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(metadata === undefined ? {} : { metadata: textMetadata(metadata) }),
    addressSource,
    addressOrigin,
  };
}

/** A profile for a server whose address is known, such as the dev server: no file and no variables are read. */
export function plainProfile(address: string, namespace = DEFAULT_NAMESPACE): ConnectionProfile {
  return { address, namespace, tls: false, addressSource: 'flag', addressOrigin: 'the address given' };
}

/** An empty variable means "not set", as it does for a shell's `VAR= command`. */
function definedVariables(env: NodeJS.ProcessEnv): Record<string, string> {
  const defined: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    // An empty TEMPORAL_GRPC_META_* has a meaning of its own: it removes the header.
    if (value !== undefined && (value !== '' || name.startsWith('TEMPORAL_GRPC_META_'))) defined[name] = value;
  }
  return defined;
}

/** Where `@temporalio/envconfig` looks when no file is named; repeated here only for messages. */
function defaultConfigFile(env: Readonly<Record<string, string>>): string | undefined {
  if (process.platform === 'darwin') {
    return join(env['HOME'] ?? homedir(), 'Library', 'Application Support', 'temporalio', 'temporal.toml');
  }
  const configHome = env['XDG_CONFIG_HOME'];
  if (configHome !== undefined && !isAbsolute(configHome)) return undefined;
  const home = env['HOME'];
  const directory = configHome ?? (home === undefined ? undefined : join(home, '.config'));
  return directory === undefined ? undefined : join(directory, 'temporalio', 'temporal.toml');
}

/**
 * Whether the file has no profile at all, such as /dev/null, which is how one says "no file". The library fails on such
 * a file with a TypeError of its own.
 */
async function hasNoProfile(file: string): Promise<boolean> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  return text !== undefined && !/^\s*\[?\s*"?profile/m.test(text);
}

function textMetadata(metadata: NonNullable<NativeConnectionOptions['metadata']>): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, value.toString()]));
}

const ADDRESS = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:/[\]]+))(?::(\d{1,5}))?$/;

function checkAddress(address: string, origin: string): string {
  const match = ADDRESS.exec(address);
  const port = match?.[3] === undefined ? 7233 : Number(match[3]);
  if (match === null || port < 1 || port > 65_535) {
    throw new AtlasError(
      'ConfigInvalid',
      `The Temporal address ${JSON.stringify(address)} (from ${origin}) is not of the form host:port.`,
      { next: 'Give a host and a port without a scheme, such as 127.0.0.1:7233; IPv6 as [::1]:7233.' },
    );
  }
  return match[3] === undefined ? `${address}:${port}` : address;
}

function splitAddress(address: string): { host: string; port: number } {
  const match = ADDRESS.exec(address);
  return { host: match?.[1] ?? match?.[2] ?? address, port: Number(match?.[3] ?? 7233) };
}

export interface ConnectOptions {
  /** Default 5 s, for everything up to the first answer. */
  readonly connectTimeoutMs?: number | undefined;
  /** Passed to the client: identity, interceptors, data converter. */
  readonly identity?: string | undefined;
  /** Whether to ask the server for the namespace. On by default, so that a wrong one is told at once. */
  readonly checkNamespace?: boolean | undefined;
}

export interface TemporalClient {
  readonly client: Client;
  readonly connection: Connection;
  readonly profile: ConnectionProfile;
  close(): Promise<void>;
}

/**
 * Connects a client.
 *
 * @throws {@link AtlasError} `ServerUnreachable` when nobody answers, `ServerRefused` when the server answers but not
 * to us: TLS, API key, permissions, namespace.
 */
export async function connectClient(profile: ConnectionProfile, options: ConnectOptions = {}): Promise<TemporalClient> {
  const timeoutMs = options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
  const deadlineMs = Date.now() + timeoutMs;
  const { Client, Connection, defaultGrpcRetryOptions, makeGrpcRetryInterceptor } = temporalClient();
  const connection = Connection.lazy({
    ...sharedOptions(profile),
    connectTimeout: timeoutMs,
    channelArgs: SESSION_CHANNEL_ARGS,
    interceptors: [makeGrpcRetryInterceptor(defaultGrpcRetryOptions()), endAfterClose],
  });
  const close = (): Promise<void> => connection.close();
  try {
    // gRPC goes on trying until the deadline even when nothing listens; a refused connection is told at once instead.
    await Promise.race([connection.ensureConnected(), rejectWhenRefused(profile)]);
    if (options.checkNamespace ?? true) {
      await connection.withDeadline(deadlineMs, () =>
        connection.workflowService.describeNamespace({ namespace: profile.namespace }),
      );
    }
  } catch (error) {
    await close().catch(() => undefined);
    throw await explainFailure(error, profile, timeoutMs);
  }
  const client = new Client({
    connection,
    namespace: profile.namespace,
    ...(options.identity === undefined ? {} : { identity: options.identity }),
  });
  return { client, connection, profile, close };
}

/**
 * Temporal's client, by require() although import() would give the same: to know what names a CommonJS package exports
 * Node would read and parse all of its files once more, which is a fifth of the time that a list of a small fleet takes.
 */
function temporalClient(): typeof import('@temporalio/client') {
  return createRequire(import.meta.url)('@temporalio/client') as typeof import('@temporalio/client');
}

type Interceptor = NonNullable<ConnectionOptions['interceptors']>[number];

const GRPC_CANCELLED = 1;

/**
 * The client's retry of a call comes from a timer. When the connection has been closed meanwhile, gRPC throws there,
 * where nobody can catch it, and the process ends. Such a call is cancelled instead. Has to be the innermost one.
 */
const endAfterClose: Interceptor = (options, nextCall) => {
  try {
    return nextCall(options) as ReturnType<Interceptor>;
  } catch (error) {
    const details = error instanceof Error ? error.message : String(error);
    const nothing = (): undefined => undefined;
    const cancelled: Pick<ReturnType<Interceptor>, keyof ReturnType<Interceptor>> = {
      start: (metadata, listener) =>
        void setImmediate(() => listener?.onReceiveStatus?.({ code: GRPC_CANCELLED, details, metadata })),
      cancelWithStatus: nothing,
      getPeer: () => '',
      sendMessage: nothing,
      sendMessageWithContext: nothing,
      startRead: nothing,
      halfClose: nothing,
      getAuthContext: () => null,
    };
    return cancelled as ReturnType<Interceptor>;
  }
};

/** What both kinds of connection take. */
function sharedOptions(profile: ConnectionProfile): Pick<ConnectionOptions, 'address' | 'tls' | 'metadata'> & {
  apiKey?: string;
} {
  return {
    address: profile.address,
    tls: profile.tls,
    ...(profile.apiKey === undefined ? {} : { apiKey: profile.apiKey }),
    ...(profile.metadata === undefined ? {} : { metadata: { ...profile.metadata } }),
  };
}

/** The `channelArgs` of a connection over which leases are renewed: it is back within a second of its server. */
export const SESSION_CHANNEL_ARGS: NonNullable<ConnectionOptions['channelArgs']> = {
  'grpc.initial_reconnect_backoff_ms': INITIAL_RECONNECT_BACKOFF_MS,
  'grpc.max_reconnect_backoff_ms': MAX_RECONNECT_BACKOFF_MS,
};

/**
 * Connects for workers, through Temporal's native core.
 *
 * @throws as {@link connectClient}; the namespace is not checked here, a Worker does that itself.
 */
export async function connectNative(
  profile: ConnectionProfile,
  options: Pick<ConnectOptions, 'connectTimeoutMs'> = {},
): Promise<NativeConnection> {
  const timeoutMs = options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
  const { NativeConnection } = await import('@temporalio/worker');
  const connecting = NativeConnection.connect(sharedOptions(profile));
  try {
    return await inTime(connecting, timeoutMs, () => {
      throw new ConnectTimeoutError(timeoutMs);
    });
  } catch (error) {
    // The attempt can not be cancelled: should it succeed after all, nobody would close it.
    void connecting.then(
      (connection) => connection.close(),
      () => undefined,
    );
    throw await explainFailure(error, profile, timeoutMs);
  }
}

class ConnectTimeoutError extends Error {
  override readonly name = 'ConnectTimeoutError';
  readonly code = 'ETIMEDOUT';
  constructor(timeoutMs: number) {
    super(`no answer within ${timeoutMs} ms`);
  }
}

// What errors mean ---------------------------------------------------------------------------------------------------

const GRPC_DEADLINE_EXCEEDED = 4;
const GRPC_NOT_FOUND = 5;
const GRPC_PERMISSION_DENIED = 7;
const GRPC_INTERNAL = 13;
const GRPC_UNAVAILABLE = 14;
const GRPC_UNAUTHENTICATED = 16;

const OUTAGE_CODES: ReadonlySet<unknown> = new Set([
  GRPC_DEADLINE_EXCEEDED,
  GRPC_UNAVAILABLE,
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
]);

/** The bound on how many causes are walked: a cause chain may be cyclic. */
const MAX_CAUSES = 16;

function* causesOf(error: unknown): Generator<Error & { code?: unknown; details?: unknown }> {
  let current = error;
  for (let depth = 0; depth < MAX_CAUSES && current instanceof Error; depth += 1) {
    yield current;
    current = current.cause;
  }
}

/**
 * Whether an error means that Temporal is away for now, as opposed to an answer that will not change by waiting. Who
 * watches or waits goes on after such an error.
 *
 * The failure of a *workflow* whose cause was an outage of something else does not count: those causes carry no gRPC
 * code, as errors lose them on their way through Temporal.
 */
export function isUnavailable(error: unknown): boolean {
  for (const cause of causesOf(error)) {
    if (cause instanceof AtlasError && cause.code === 'ServerUnreachable') return true;
    // An answer of the server about the workflow ends the search: what caused that failure is not about the server.
    if (cause.name === 'WorkflowFailedError' || cause.name === 'ApplicationFailure') return false;
    if (OUTAGE_CODES.has(cause.code)) return true;
    // The native core reports a lost connection without a code.
    if (cause.name === 'TransportError') return true;
    // A connection that is cut while a call is under way.
    if (cause.code === GRPC_INTERNAL && /RST_STREAM|GOAWAY|http2|stream/i.test(cause.message)) return true;
  }
  return false;
}

/**
 * The error of the catalogue for an error of a Temporal call: `ServerUnreachable` or `ServerRefused`; undefined when
 * it is neither, such as a workflow that was not found.
 */
export function toServerError(error: unknown, profile: ConnectionProfile): AtlasError | undefined {
  if (error instanceof AtlasError) return error;
  const refused = refusal(error, profile);
  if (refused !== undefined) return refused;
  if (!isUnavailable(error)) return undefined;
  return unreachable(profile, deepestMessage(error), error);
}

function refusal(error: unknown, profile: ConnectionProfile): AtlasError | undefined {
  for (const cause of causesOf(error)) {
    const namespaceMissing =
      cause.name === 'NamespaceNotFoundError' ||
      (cause.code === GRPC_NOT_FOUND && /namespace .*not found/i.test(cause.message));
    if (namespaceMissing) {
      return new AtlasError(
        'ServerRefused',
        `The Temporal server at ${profile.address} has no namespace ${JSON.stringify(profile.namespace)}.`,
        { cause: error, next: 'Set TEMPORAL_NAMESPACE, or the namespace of the profile, to one that exists there.' },
      );
    }
    if (cause.code === GRPC_UNAUTHENTICATED) {
      return new AtlasError(
        'ServerRefused',
        `The Temporal server at ${profile.address} does not accept the credentials: ${detailsOf(cause)}`,
        { cause: error, next: 'Check TEMPORAL_API_KEY, or the api_key and the certificates of the profile.' },
      );
    }
    if (cause.code === GRPC_PERMISSION_DENIED) {
      return new AtlasError(
        'ServerRefused',
        `The Temporal server at ${profile.address} does not permit this in namespace ${JSON.stringify(profile.namespace)}: ${detailsOf(cause)}`,
        { cause: error, next: 'Check the namespace, and that the API key or certificate may use it.' },
      );
    }
  }
  return undefined;
}

function unreachable(profile: ConnectionProfile, reason: string, cause: unknown): AtlasError {
  return new AtlasError(
    'ServerUnreachable',
    `The Temporal server at ${profile.address} (from ${profile.addressOrigin}) does not answer: ${reason}`,
    {
      cause,
      next:
        profile.addressSource === 'default'
          ? 'Start a local server and worker with `atlas dev`, or set TEMPORAL_ADDRESS to a server that runs.'
          : `Check ${profile.addressSource === 'profile' ? 'the address in the profile' : profile.addressOrigin} and that the server runs; \`atlas dev\` starts a local one.`,
    },
  );
}

/** Finds the reason behind a connection that did not come about. gRPC itself only says that its deadline passed. */
async function explainFailure(error: unknown, profile: ConnectionProfile, timeoutMs: number): Promise<AtlasError> {
  if (error instanceof AtlasError) return error;
  const refused = refusal(error, profile);
  if (refused !== undefined) return refused;
  if (!(error instanceof Error)) return unreachable(profile, String(error), error);
  if (error instanceof TypeError) {
    return new AtlasError('ConfigInvalid', `The connection profile can not be used: ${error.message}`, {
      cause: error,
    });
  }

  // Behind a proxy a direct connection says nothing.
  if (usesProxy(profile)) return unreachable(profile, deepestMessage(error), error);
  const tcp = await probe(profile, false);
  if (tcp !== undefined) return unreachable(profile, readableReason(tcp), error);
  if (profile.tls !== false) {
    const tls = await probe(profile, true);
    if (tls !== undefined) {
      return new AtlasError(
        'ServerRefused',
        `The TLS connection to the Temporal server at ${profile.address} fails: ${tlsReason(tls)}`,
        {
          cause: error,
          next: 'Check the TLS settings of the profile: the CA, the certificate and its key, the server name; TEMPORAL_TLS=false for a server without TLS.',
        },
      );
    }
  }
  return unreachable(
    profile,
    `it accepts connections but gave no answer within ${timeoutMs} ms${profile.tls === false ? '; if it expects TLS, set TEMPORAL_TLS=true' : ''}`,
    error,
  );
}

/**
 * Rejects when it is known at once that waiting is no use: nobody listens, the name does not exist, the two ends do
 * not agree about TLS. Never resolves.
 */
function rejectWhenRefused(profile: ConnectionProfile): Promise<never> {
  return new Promise((_, reject) => {
    if (usesProxy(profile)) return;
    void (async () => {
      const tcp = await probe(profile, false);
      if (tcp?.code === 'ECONNREFUSED' || tcp?.code === 'ENOTFOUND') reject(tcp);
      if (tcp !== undefined || profile.tls === false) return;
      const tls = await probe(profile, true);
      if (tls !== undefined && tls.code !== 'ETIMEDOUT' && tls.code !== 'ECONNRESET') reject(tls);
    })();
  });
}

/** Opens and closes a connection; resolves to the error, or to undefined when it worked. */
function probe(profile: ConnectionProfile, tls: boolean): Promise<NodeJS.ErrnoException | undefined> {
  const { host, port } = splitAddress(profile.address);
  return new Promise((resolve) => {
    const socket = tls ? connectTls(tlsOptions(profile, host, port)) : connectTcp({ host, port });
    const finish = (error?: NodeJS.ErrnoException): void => {
      socket.destroy();
      resolve(error);
    };
    socket.setTimeout(DIAGNOSIS_TIMEOUT_MS, () => finish(new ConnectTimeoutError(DIAGNOSIS_TIMEOUT_MS)));
    socket.once(tls ? 'secureConnect' : 'connect', () => finish());
    socket.once('error', (error: NodeJS.ErrnoException) => finish(firstError(error)));
  });
}

/** With several addresses for one name Node reports an AggregateError without a message. */
function firstError(error: NodeJS.ErrnoException): NodeJS.ErrnoException {
  if (error instanceof AggregateError) {
    const first: unknown = error.errors[0];
    if (first instanceof Error) return first;
  }
  return error;
}

function tlsOptions(profile: ConnectionProfile, host: string, port: number): TlsOptions {
  const config = typeof profile.tls === 'object' ? profile.tls : {};
  return {
    host,
    port,
    // An IP address is not a server name; gRPC checks the certificate against it all the same.
    servername: config.serverNameOverride ?? (isIP(host) === 0 ? host : ''),
    ALPNProtocols: ['h2'],
    ...(config.serverRootCACertificate ? { ca: Buffer.from(config.serverRootCACertificate) } : {}),
    ...(config.clientCertPair
      ? { cert: Buffer.from(config.clientCertPair.crt), key: Buffer.from(config.clientCertPair.key) }
      : {}),
  };
}

/** gRPC follows these variables; loopback addresses are left out of proxies by common convention only. */
function usesProxy(profile: ConnectionProfile): boolean {
  const { host } = splitAddress(profile.address);
  if (/^(localhost|127\.|::1$)/.test(host)) return false;
  return ['grpc_proxy', 'https_proxy', 'http_proxy'].some((name) => Boolean(process.env[name]));
}

/** OpenSSL's messages are for its authors; its `reason` is for people. */
function tlsReason(error: NodeJS.ErrnoException & { reason?: unknown }): string {
  if (error.code === 'ERR_SSL_WRONG_VERSION_NUMBER') return 'the server does not speak TLS';
  return typeof error.reason === 'string' ? error.reason : error.message.trim();
}

function readableReason(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case 'ECONNREFUSED':
      return 'connection refused, so nothing listens there';
    case 'ENOTFOUND':
      return 'the host name does not resolve';
    case 'ETIMEDOUT':
      return 'the connection timed out';
    default:
      return error.message;
  }
}

function deepestMessage(error: unknown): string {
  let deepest = String(error);
  for (const cause of causesOf(error)) deepest = detailsOf(cause);
  return deepest;
}

function detailsOf(error: Error & { details?: unknown }): string {
  return typeof error.details === 'string' && error.details !== '' ? error.details : error.message;
}
