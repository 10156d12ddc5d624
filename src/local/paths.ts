/**
 * Where the state directory of an atlasd is, and its socket in there: known to the daemon, which makes both, and to
 * commands on the same host, which only look.
 */
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { AtlasError } from '../contract/errors.js';

/** What `sun_path` of a Unix socket takes, less its final NUL. */
function maxSocketPathBytes(): number {
  return process.platform === 'linux' ? 107 : 103;
}

/**
 * Where atlasd keeps its state when it is not told: one directory per fleet, for the system when run by root and else per
 * user. It does not depend on the worker's name, so that a second atlasd started by mistake meets the lock of the first.
 */
export function defaultStateDirectory(
  env: NodeJS.ProcessEnv,
  fleet: string,
  platform: NodeJS.Platform = process.platform,
  uid: number | undefined = process.getuid?.(),
): string {
  if (uid === 0) return join('/var/lib/atlas', fleet);
  const home = env['HOME'] ?? homedir();
  if (platform === 'darwin') return join(home, 'Library', 'Application Support', 'Atlas', fleet);
  const stateHome = env['XDG_STATE_HOME'];
  // The XDG specification: a relative path is invalid and is ignored.
  const base = stateHome !== undefined && isAbsolute(stateHome) ? stateHome : join(home, '.local', 'state');
  return join(base, 'atlas', fleet);
}

/**
 * The socket of the atlasd that uses this state directory.
 *
 * @throws {@link AtlasError} `SocketPathTooLong`
 */
export function socketPathIn(stateDirectory: string): string {
  const socketPath = join(resolve(stateDirectory), 'atlasd.sock');
  const length = Buffer.byteLength(socketPath);
  if (length > maxSocketPathBytes()) {
    throw new AtlasError(
      'SocketPathTooLong',
      `The local socket would be ${socketPath}, which is ${length} bytes; this system allows ${maxSocketPathBytes()}.`,
    );
  }
  return socketPath;
}
