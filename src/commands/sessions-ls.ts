/** `atlas sessions ls`: the sessions that the workers of a fleet hold, and what each of them is doing. */
import { EXIT } from '../contract/exit-codes.js';
import type { SessionRecord } from '../fleet/client.js';
import type { CommandSpec, ParsedCommand } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { LIST_OPTIONS, listHelp } from './support/list-view.js';
import { durationBetween } from './support/parse.js';
import { SESSION_VIEW } from './support/session-view.js';

const MAX_IDLE_MS = 365 * 86_400_000;

export const sessionsLs: CommandSpec = {
  path: ['sessions', 'ls'],
  summary: 'List the sessions that the workers of a fleet hold.',
  description: [
    'STATE is granting, held or releasing; leaked where the slot is held for nothing: the workflow that owns the session has closed, or has no lease of it any more. A session on a worker that is in trouble shows the state of that worker, too.',
    'STEP is the pinned activity that runs now, how long its attempt has been running, and which attempt it is after the first. HELD is how long the session has had its slot, IDLE how long no step has run, EXPIRES when it reaches its maximum duration, SCRATCH what its directory takes on disk, OWNER the status of the workflow that owns it. A narrow terminal gets fewer columns: SCRATCH and OWNER go first.',
    'A leaked session needs nothing as long as its worker lives: the worker notices within seconds, or with the next renewal of the lease.',
    ...listHelp(SESSION_VIEW),
  ],
  arguments: [],
  options: [
    {
      flags: '--worker <name>',
      description: 'only the sessions of this worker; a beginning that is unique will do',
      completes: 'worker',
    },
    { flags: '--leaked', description: 'only sessions that are held for nothing' },
    {
      flags: '--idle <duration>',
      description: 'only sessions in which no step has run for at least so long',
      parse: durationBetween(0, MAX_IDLE_MS),
    },
    ...LIST_OPTIONS,
    ...CONNECTION_OPTIONS,
  ],
  examples: [
    { command: 'atlas sessions ls', explanation: 'what runs where, now' },
    { command: 'atlas sessions ls --worker worker-7 -w', explanation: 'what worker-7 does, kept up to date' },
    { command: 'atlas sessions ls --leaked -o name', explanation: 'what is held for nothing, for a script' },
    {
      command: 'atlas sessions ls --idle 30m --sort-by -idleForMs',
      explanation: 'who keeps a slot without using it, the longest first',
    },
    {
      command: `atlas sessions ls -o jsonl -l step=ocrPages | jq -r .session.workflowId`,
      explanation: 'the workflows whose session runs this step',
    },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.interrupted],
  load: async () => {
    const { listFleet } = await import('./support/list.js');
    const { pickWorker } = await import('./support/pick.js');
    return (context, parsed) =>
      listFleet(context, parsed, {
        view: SESSION_VIEW,
        noun: 'session',
        list: async (fleet) => {
          const { workers, sessions } = await fleet.look();
          const word = parsed.options['worker'] as string | undefined;
          const worker = word === undefined ? undefined : pickWorker(word, workers, fleet.fleet).name;
          const chosen = worker === undefined ? sessions : sessions.filter((session) => session.worker === worker);
          // Owners are asked for last, of as few sessions as can be.
          const { rows, note } = idleOnly(chosen, parsed);
          const asked = await fleet.withOwners(rows);
          return {
            rows: parsed.options['leaked'] === true ? asked.filter(({ leaked }) => leaked === true) : asked,
            known: sessions.length,
            ...(note === undefined ? {} : { note }),
          };
        },
        whenEmpty: (fleet) => ({
          message: `No worker of the fleet "${fleet}" holds a session.`,
          next: 'See `atlas workers ls` for the workers, or run a job: `atlas run process-document FILE`.',
        }),
      });
  },
};

/** The sessions that `--idle` leaves, and a word on those of which it can not be said. Pure. */
export function idleOnly(
  sessions: readonly SessionRecord[],
  { options }: Pick<ParsedCommand, 'options'>,
): { readonly rows: readonly SessionRecord[]; readonly note?: string } {
  const atLeastMs = options['idle'] as number | undefined;
  if (atLeastMs === undefined) return { rows: sessions };
  const unknown = sessions.filter(({ step, idleForMs }) => step === null && idleForMs === null);
  return {
    rows: sessions.filter(({ idleForMs }) => idleForMs !== null && idleForMs >= atLeastMs),
    ...(unknown.length === 0
      ? {}
      : {
          note: `Left out, as their atlasd does not say for how long they are idle: ${unknown.map(({ session }) => session).join(', ')}.`,
        }),
  };
}
