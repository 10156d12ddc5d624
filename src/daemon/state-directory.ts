/**
 * The state directory of one atlasd: who the worker is, and the promise that only one process uses the directory.
 *
 * Owns: creating and checking the directory, the kernel lock, the `queue` file with the instance id, the places of
 * socket, ledger, scratch, kept artifacts and cache. Must not read the ledger or touch sessions: when it says `copied` or
 * `renamed`, the caller drops them.
 */
import { createHash, randomInt } from 'node:crypto';
import { constants, readFileSync, type Stats } from 'node:fs';
import { access, chmod, mkdir, open, readFile, readdir, stat, type FileHandle } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { AtlasError } from '../contract/errors.js';
import { MAX_NAME_LENGTH, workerControlQueue, workerQueue } from '../contract/names.js';
import { socketPathIn } from '../local/paths.js';
import { isErrno, keepDamaged, writeFileAtomic } from './atomic-file.js';

const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
const QUEUE_FILE = 'queue';
const LOCK_FILE = 'lock';
const QUEUE_FILE_VERSION = 1;
const INSTANCE_LENGTH = 6;
const NAME_SUFFIX_LENGTH = 4;

export interface WorkerDirectoryIdentity {
  readonly name: string;
  readonly fleet: string;
  /** New when the directory is new, was copied, or serves another name: queues of the old one have no poller then. */
  readonly instance: string;
  readonly queue: string;
  readonly controlQueue: string;
  /** '' when unknown. */
  readonly machineId: string;
  /** '' when unknown. */
  readonly bootId: string;
  readonly directoryId: string;
}

export interface StateDirectory {
  readonly path: string;
  readonly socketPath: string;
  readonly ledgerPath: string;
  /** Working files of sessions. */
  readonly scratchRoot: string;
  /** Artifacts kept for a while after their session. */
  readonly keptRoot: string;
  /** What activities can make again, to have it sooner. */
  readonly cacheRoot: string;
  readonly identity: WorkerDirectoryIdentity;
  /** The directory was made on another host or in another place: its sessions belong to whoever has the original. */
  readonly copied: boolean;
  /** The directory served another worker name or fleet before: its sessions are that worker's. */
  readonly renamed: boolean;
  /** Where an unreadable `queue` file was moved. */
  readonly damaged: string | null;
  /** Gives the lock up. */
  release(): Promise<void>;
}

export interface StateDirectoryOptions {
  readonly fleet: string;
  readonly name: string;
  /** For tests. */
  readonly machineId?: string;
}

const queueFileSchema = z.object({
  version: z.literal(QUEUE_FILE_VERSION),
  name: z.string(),
  fleet: z.string(),
  instance: z.string().regex(/^[a-z][a-z0-9]+$/),
  machineId: z.string(),
  directoryId: z.string(),
  queue: z.string(),
});

type QueueFile = z.output<typeof queueFileSchema>;

/**
 * Creates or opens the directory and takes its lock, which the kernel drops when this process ends in whatever way.
 * Throws `StateDirUnwritable`, `StateDirLocked` or `SocketPathTooLong`; it then holds no lock.
 */
export async function openStateDirectory(path: string, options: StateDirectoryOptions): Promise<StateDirectory> {
  const directory = resolve(path);
  const socketPath = socketPathIn(directory);
  await describingErrors(directory, () => prepareDirectory(directory));
  const lock = await takeLock(directory);
  try {
    return await describingErrors(directory, async () => {
      const scratchRoot = join(directory, 'scratch');
      const keptRoot = join(directory, 'kept');
      const cacheRoot = join(directory, 'cache');
      for (const root of [scratchRoot, keptRoot, cacheRoot]) {
        await mkdir(root, { recursive: true, mode: DIRECTORY_MODE });
        await chmod(root, DIRECTORY_MODE);
      }
      const { identity, copied, renamed, damaged } = await settleIdentity(directory, options);
      return {
        path: directory,
        socketPath,
        ledgerPath: join(directory, 'ledger'),
        scratchRoot,
        keptRoot,
        cacheRoot,
        identity,
        copied,
        renamed,
        damaged,
        release: () => releaseLock(lock),
      };
    });
  } catch (error) {
    await releaseLock(lock);
    throw error;
  }
}

/**
 * The name of a worker that was given none: the one this directory had, or else the host's name with a random suffix,
 * since clones of a machine often share its name. `openStateDirectory` persists it.
 */
export async function defaultWorkerName(stateDirectory: string, host: string = hostname()): Promise<string> {
  const directory = resolve(stateDirectory);
  const stored = parseQueueFile(await readFile(join(directory, QUEUE_FILE), 'utf8').catch(() => ''));
  // A copied directory must not claim the name of the worker that it was copied from.
  if (stored !== undefined && !isCopy(stored, readMachineId(), await directoryIdOf(directory))) return stored.name;
  const sanitized = host
    .toLowerCase()
    .replace(/[^a-z0-9.-]+/g, '-')
    .replace(/^[.-]+/, '')
    .slice(0, MAX_NAME_LENGTH - NAME_SUFFIX_LENGTH - 1)
    .replace(/[.-]+$/, '');
  return `${sanitized === '' ? 'worker' : sanitized}-${randomWord(NAME_SUFFIX_LENGTH)}`;
}

async function prepareDirectory(directory: string): Promise<void> {
  const created = await createDirectory(directory);
  const { mode } = await stat(directory);
  await access(directory, constants.R_OK | constants.W_OK | constants.X_OK);
  if (created || (mode & 0o077) === 0) return;
  if (await isOursToTighten(directory, mode)) await chmod(directory, DIRECTORY_MODE);
}

/**
 * Whether a directory that others may look into was made by or for atlasd: a slip such as `--state-dir /tmp` must not
 * change /tmp. Throws where it can not be used at all.
 */
async function isOursToTighten(directory: string, mode: number): Promise<boolean> {
  const names = await readdir(directory);
  if (names.length === 0 || names.includes(QUEUE_FILE) || names.includes(LOCK_FILE)) return true;
  if ((mode & 0o022) === 0) return false;
  throw errnoError('EPERM', 'it has files that are not of atlasd, and other users may write to it');
}

export interface DirectoryProbe {
  /** The directory, or the nearest above it that is there. */
  readonly nearest: string;
  readonly exists: boolean;
  /** The pid that its user has written down, '' where it wrote none; null where nobody uses it. */
  readonly heldBy: string | null;
}

/**
 * Whether this user could start an atlasd with the directory. Creates and changes nothing, but holds a free lock for a
 * moment: there is no other way to ask for it.
 *
 * @throws {@link AtlasError} `StateDirUnwritable`
 */
export async function probeStateDirectory(path: string): Promise<DirectoryProbe> {
  const directory = resolve(path);
  return await describingErrors(directory, async () => {
    let nearest = directory;
    let found = await statOrNothing(nearest);
    while (found === undefined && dirname(nearest) !== nearest) {
      nearest = dirname(nearest);
      found = await statOrNothing(nearest);
    }
    if (found?.isDirectory() !== true) throw errnoError('ENOTDIR', `${nearest} is not a directory`);
    const exists = nearest === directory;
    await access(nearest, constants.W_OK | constants.X_OK | (exists ? constants.R_OK : 0));
    if (!exists) return { nearest, exists, heldBy: null };
    if ((found.mode & 0o077) !== 0) await isOursToTighten(directory, found.mode);
    return { nearest, exists, heldBy: await lockHolder(directory) };
  });
}

async function statOrNothing(path: string): Promise<Stats | undefined> {
  return await stat(path).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT')) return undefined;
    throw error;
  });
}

async function lockHolder(directory: string): Promise<string | null> {
  const { tryLock } = await import('fs-native-extensions');
  let handle: FileHandle;
  try {
    handle = await open(join(directory, LOCK_FILE), constants.O_RDWR);
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return null;
    throw error;
  }
  try {
    return tryLock(handle.fd) ? null : (await handle.readFile('utf8')).trim();
  } finally {
    // Gives the lock up where it was free.
    await handle.close();
  }
}

/**
 * Creates a directory and the parents it lacks; false when it is there. Not `mkdir` with `recursive`: where the system
 * answers ENOENT for a name that can not be created, as in /proc, Node 20 tries again for ever.
 */
async function createDirectory(directory: string): Promise<boolean> {
  try {
    await mkdir(directory, DIRECTORY_MODE);
    return true;
  } catch (error) {
    if (isErrno(error, 'EEXIST') && (await stat(directory)).isDirectory()) return false;
    // A parent that was there already is not the reason.
    if (!isErrno(error, 'ENOENT') || !(await createDirectory(dirname(directory)))) throw error;
  }
  await mkdir(directory, DIRECTORY_MODE);
  return true;
}

async function takeLock(directory: string): Promise<FileHandle> {
  // The native module is loaded only by who takes a lock.
  const { tryLock } = await import('fs-native-extensions');
  const handle = await describingErrors(directory, () =>
    open(join(directory, LOCK_FILE), constants.O_RDWR | constants.O_CREAT, FILE_MODE),
  );
  try {
    const locked = await describingErrors(directory, async () => tryLock(handle.fd));
    if (!locked) {
      const holder = (await handle.readFile('utf8')).trim();
      throw new AtlasError(
        'StateDirLocked',
        `The state directory ${directory} is used by another atlasd${holder === '' ? '' : `, process ${holder}`}.`,
      );
    }
    await describingErrors(directory, async () => {
      // For the message above only: a pid proves nothing, the lock does.
      await handle.truncate(0);
      await handle.write(`${process.pid}\n`, 0);
    });
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The file stays: who unlinked it could take it away from a process that has just locked it. */
async function releaseLock(lock: FileHandle): Promise<void> {
  await lock.truncate(0).catch(() => undefined);
  await lock.close();
}

interface SettledIdentity {
  readonly identity: WorkerDirectoryIdentity;
  readonly copied: boolean;
  readonly renamed: boolean;
  readonly damaged: string | null;
}

async function settleIdentity(directory: string, options: StateDirectoryOptions): Promise<SettledIdentity> {
  const { fleet, name } = options;
  const file = join(directory, QUEUE_FILE);
  const machineId = options.machineId ?? readMachineId();
  const directoryId = await directoryIdOf(directory);
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (isErrno(error, 'ENOENT')) return undefined;
    throw error;
  });
  const stored = text === undefined ? undefined : parseQueueFile(text);
  const damaged = text !== undefined && stored === undefined ? await keepDamaged(file) : null;
  const copied = stored !== undefined && isCopy(stored, machineId, directoryId);
  const renamed = stored !== undefined && (stored.name !== name || stored.fleet !== fleet);
  const instance = stored === undefined || copied || renamed ? randomWord(INSTANCE_LENGTH, LETTERS) : stored.instance;
  const queue = workerQueue(fleet, name, instance);
  const record: QueueFile = { version: QUEUE_FILE_VERSION, name, fleet, instance, machineId, directoryId, queue };
  if (JSON.stringify(record) !== JSON.stringify(stored)) {
    await writeFileAtomic(file, `${JSON.stringify(record, null, 2)}\n`, FILE_MODE);
  }
  const controlQueue = workerControlQueue(fleet, name, instance);
  const identity = { name, fleet, instance, queue, controlQueue, machineId, bootId: readBootId(), directoryId };
  return { identity, copied, renamed, damaged };
}

function parseQueueFile(text: string): QueueFile | undefined {
  try {
    return queueFileSchema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

function isCopy(stored: QueueFile, machineId: string, directoryId: string): boolean {
  if (stored.machineId !== '' && machineId !== '' && stored.machineId !== machineId) return true;
  return !isSameDirectory(stored.directoryId, directoryId);
}

/** Whether two directory ids are of one directory, as far as the file system can tell. */
export function isSameDirectory(storedId: string, directoryId: string): boolean {
  const [storedInode, storedBirth] = storedId.split('.');
  const [inode, birth] = directoryId.split('.');
  return storedInode === inode && (storedBirth === '0' || birth === '0' || storedBirth === birth);
}

/** Inode and time of birth: a moved directory keeps both, a copy has neither. */
async function directoryIdOf(directory: string): Promise<string> {
  const { ino, birthtimeNs, ctimeNs } = await stat(directory, { bigint: true });
  // Where the file system knows no birth, Node gives the time of the last change, which differs at every start.
  return `${ino}.${birthtimeNs === ctimeNs ? 0 : birthtimeNs}`;
}

function readMachineId(): string {
  if (process.platform === 'linux') {
    // No fallback here: a container without it gets a new host name at every start, and would lose its sessions.
    return readOptional('/etc/machine-id');
  }
  return createHash('sha256').update(hostname()).digest('hex').slice(0, 32);
}

function readBootId(): string {
  return readOptional('/proc/sys/kernel/random/boot_id');
}

function readOptional(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const LETTERS_AND_DIGITS = `${LETTERS}0123456789`;

function randomWord(length: number, firstOf: string = LETTERS_AND_DIGITS): string {
  let word = '';
  for (let index = 0; index < length; index += 1) {
    const alphabet = index === 0 ? firstOf : LETTERS_AND_DIGITS;
    word += alphabet[randomInt(alphabet.length)]!;
  }
  return word;
}

/** Turns whatever the file system says into `StateDirUnwritable`. */
async function describingErrors<T>(directory: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof AtlasError || !(error instanceof Error) || !('code' in error)) throw error;
    const uid = process.getuid?.();
    throw new AtlasError(
      'StateDirUnwritable',
      `The state directory ${directory} can not be used by uid ${uid ?? 'unknown'}: ${error.message}.`,
      { cause: error },
    );
  }
}

function errnoError(code: string, message: string): Error {
  return Object.assign(new Error(`${code}: ${message}`), { code });
}
