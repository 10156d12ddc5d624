/**
 * The options of every command that talks to Temporal, and the connection made from them.
 *
 * Help shows these options, so that nothing heavy may be imported here at load time.
 */
import { DEFAULT_FLEET, checkName } from '../../contract/names.js';
import type { TemporalClient } from '../../temporal/connect.js';
import type { OptionSpec, ParsedCommand } from '../spec.js';

export const CONNECTION_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--address <host:port>',
    description: 'the Temporal server (default: TEMPORAL_ADDRESS, then the profile, then localhost:7233)',
  },
  {
    flags: '--namespace <name>',
    description: 'the Temporal namespace (default: TEMPORAL_NAMESPACE, then the profile, then "default")',
  },
  {
    flags: '--profile <name>',
    description: 'the profile of the Temporal configuration file (default: TEMPORAL_PROFILE, then "default")',
  },
  {
    flags: '--fleet <name>',
    description: 'the fleet of workers',
    env: 'ATLAS_FLEET',
    default: DEFAULT_FLEET,
    parse: (text) => checkName('fleet', text),
  },
];

/** Connects with the flags of the command line, then the environment, then the profile. */
export async function openConnection(env: NodeJS.ProcessEnv, parsed: ParsedCommand): Promise<TemporalClient> {
  const { connectClient, loadProfile } = await import('../../temporal/connect.js');
  const text = (name: string): string | undefined => {
    const value = parsed.options[name];
    return typeof value === 'string' ? value : undefined;
  };
  return connectClient(
    await loadProfile(env, { address: text('address'), namespace: text('namespace'), profile: text('profile') }),
  );
}

export function fleetOf(parsed: ParsedCommand): string {
  return String(parsed.options['fleet']);
}
