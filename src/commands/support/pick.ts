/**
 * Which worker or session a word on the command line means: the whole name, or a beginning that only one has. Pure.
 */
import { AtlasError } from '../../contract/errors.js';
import type { SessionRecord, WorkerRecord } from '../../fleet/client.js';
import { didYouMean } from './did-you-mean.js';

/** More candidates than this are only counted. */
const CANDIDATES_SHOWN = 10;

/**
 * The worker of that name, else the only one whose name begins so.
 *
 * @throws {@link AtlasError} `NotFound`, or `Usage` with the candidates where several begin so.
 */
export function pickWorker(word: string, workers: readonly WorkerRecord[], fleet: string): WorkerRecord {
  const exact = workers.find(({ name }) => name === word);
  if (exact !== undefined) return exact;
  const candidates = workers.filter(({ name }) => name.startsWith(word));
  if (candidates.length === 1) return candidates[0]!;
  if (candidates.length > 1) {
    throw ambiguous(
      `"${word}" is the beginning of ${candidates.length} workers`,
      candidates.map(({ name, state, host }) => `${name}  ${state}, on ${host}`),
      'Type more of the name.',
    );
  }
  const names = workers.map(({ name }) => name);
  throw new AtlasError('NotFound', `The fleet "${fleet}" has no worker "${word}".${didYouMean(word, names)}`, {
    next: 'See `atlas workers ls` for the workers, or name another fleet with --fleet.',
  });
}

/**
 * What operators have done to a session that no worker holds any more, for the one who asks where it is; newest first.
 */
function releaseOf(word: string, workers: readonly WorkerRecord[]): string | undefined {
  const releases = workers.flatMap(({ name, scheduling }) =>
    scheduling.notes
      .filter(({ sessions = [] }) => sessions.some((key) => key.startsWith(word)))
      .map(({ who, why, at }) => ({
        at,
        text: `${who} released it by force on ${name} at ${at}${why === null ? '' : ` ("${why}")`}.`,
      })),
  );
  return releases.sort((a, b) => b.at.localeCompare(a.at))[0]?.text;
}

/**
 * The session of that id or key, else the only one whose id begins so. Where a lost worker still has an entry of a session
 * that was redone elsewhere, the one that lives comes first and the others after it.
 *
 * `workers`, if given, may know why a session is gone.
 *
 * @throws {@link AtlasError} `NotFound`, or `Usage` with the candidates where several begin so.
 */
export function pickSession(
  word: string,
  sessions: readonly SessionRecord[],
  fleet: string,
  workers: readonly WorkerRecord[] = [],
): readonly [SessionRecord, ...SessionRecord[]] {
  const whole = sessions.filter(({ session, key }) => session === word || key === word);
  const candidates = whole.length > 0 ? whole : sessions.filter(({ key }) => key.startsWith(word));
  const keys = [...new Set(candidates.map(({ key }) => key))];
  if (keys.length > 1) {
    throw ambiguous(
      `"${word}" is the beginning of ${keys.length} sessions`,
      candidates.map(({ key, session, worker, workflowId }) => {
        const twins = candidates.filter((each) => each.session === session && each.key !== key).length > 0;
        return `${twins ? key : session}  on ${worker}, owner ${workflowId}`;
      }),
      'Type more of the id.',
    );
  }
  const [first, ...others] = [...candidates].sort(
    (a, b) => Number(isGone(a)) - Number(isGone(b)) || b.epoch - a.epoch || a.heldForMs - b.heldForMs,
  );
  if (first !== undefined) return [first, ...others];
  const ids = sessions.map(({ session }) => session);
  const release = releaseOf(word, workers);
  throw new AtlasError(
    'NotFound',
    `No worker of the fleet "${fleet}" holds a session "${word}".${release === undefined ? didYouMean(word, ids) : ` ${release}`}`,
    {
      next: 'A session that has ended is no longer in the fleet: the history of the workflow that owned it has every step, as activities whose ids begin with the session id (`temporal workflow show --workflow-id ID`). `atlas sessions ls` lists those that are held.',
    },
  );
}

function isGone({ workerState }: SessionRecord): boolean {
  return workerState === 'lost' || workerState === 'stopped';
}

function ambiguous(sentence: string, lines: readonly string[], next: string): AtlasError {
  const shown = lines.slice(0, CANDIDATES_SHOWN).map((line) => `\n  ${line}`);
  const more = lines.length - shown.length;
  const rest = more > 0 ? `\n  and ${more} more` : '';
  return new AtlasError('Usage', `${sentence}:${shown.join('')}${rest}`, { next });
}
