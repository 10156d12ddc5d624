/**
 * The candidates that only the fleet knows: one a line, a tab, and a few words about it.
 *
 * Whatever goes wrong here, the person sees nothing: what is printed would land in the line that is being typed, and
 * nobody asked for more than a convenience. It is the one place where silence is the right answer to an error; the
 * command itself reports it as soon as it is run.
 */
import { EXIT } from '../../../contract/exit-codes.js';
import { inTime } from '../../../contract/in-time.js';
import { DEFAULT_FLEET } from '../../../contract/names.js';
import type { FleetClient } from '../../../fleet/client.js';
import { plainText } from '../../../terminal/format.js';
import type { CommandContext, RunCommand } from '../../spec.js';

/** With the start of the process before it this keeps a key press at about two seconds. */
const LIVE_TIMEOUT_MS = 1_800;

interface Candidate {
  readonly word: string;
  readonly about: string;
}

export const printLiveCandidates: RunCommand = async (context, parsed) => {
  const [kind, words] = parsed.args;
  const asked = ask(context, String(kind), Array.isArray(words) ? (words as string[]) : []).catch(() => []);
  const candidates = await inTime(asked, LIVE_TIMEOUT_MS, () => []);
  for (const { word, about } of candidates) context.stdout.write(`${plainText(word)}\t${plainText(about)}\n`);
  return EXIT.done;
};

async function ask(context: CommandContext, kind: string, words: readonly string[]): Promise<Candidate[]> {
  const candidatesOf = KINDS[kind];
  if (candidatesOf === undefined) return [];
  const [{ connectClient, loadProfile }, { FleetClient }] = await Promise.all([
    import('../../../temporal/connect.js'),
    import('../../../fleet/client.js'),
  ]);
  const variable = context.env['ATLAS_FLEET'] ?? '';
  const fleet = lastValue(words, '--fleet') ?? (variable === '' ? DEFAULT_FLEET : variable);
  const profile = await loadProfile(context.env, {
    address: lastValue(words, '--address'),
    namespace: lastValue(words, '--namespace'),
    profile: lastValue(words, '--profile'),
  });
  // A namespace that does not exist fails the first call as well, and nobody reads why.
  const connection = await connectClient(profile, { connectTimeoutMs: LIVE_TIMEOUT_MS, checkNamespace: false });
  try {
    return await candidatesOf(new FleetClient(connection.client, { fleet }));
  } finally {
    await connection.close();
  }
}

const KINDS: Readonly<Record<string, (fleet: FleetClient) => Promise<Candidate[]>>> = {
  worker: async (fleet) =>
    (await fleet.listWorkers()).map(({ name, state, sessions, cap }) => ({
      word: name,
      about: `${state}, ${sessions} of ${cap} slots taken`,
    })),
  session: async (fleet) => {
    const sessions = await fleet.listSessions();
    const count = new Map<string, number>();
    for (const { session } of sessions) count.set(session, (count.get(session) ?? 0) + 1);
    return sessions.map(({ session, key, worker, workflowId }) => ({
      // After a reset of its workflow a session may be there twice; its key tells the two apart.
      word: count.get(session) === 1 ? session : key,
      about: `on ${worker}, ${workflowId}`,
    }));
  },
};

/** The line is not finished and may not be valid, so it is not parsed as a command: only these flags are looked for. */
function lastValue(words: readonly string[], flag: string): string | undefined {
  let value: string | undefined;
  words.forEach((word, index) => {
    if (word === flag) value = words[index + 1] ?? value;
    else if (word.startsWith(`${flag}=`)) value = word.slice(flag.length + 1);
  });
  return value === '' ? undefined : value;
}
