/**
 * The options of every command that talks to Temporal, and the connection made from them.
 *
 * The flags become the variables that Temporal's own tools read, so that there is one order of precedence and it is
 * theirs: flag, environment, profile, default.
 */
import { DEFAULT_FLEET, checkName } from '../../contract/names.js';
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
    description: 'the fleet to look at',
    env: 'ATLAS_FLEET',
    default: DEFAULT_FLEET,
    parse: (text) => checkName('fleet', text),
  },
];

const VARIABLES: Readonly<Record<string, string>> = {
  address: 'TEMPORAL_ADDRESS',
  namespace: 'TEMPORAL_NAMESPACE',
  profile: 'TEMPORAL_PROFILE',
};

/** The environment with the connection flags of the command line put over it. */
export function connectionEnv(env: NodeJS.ProcessEnv, parsed: ParsedCommand): NodeJS.ProcessEnv {
  const result: NodeJS.ProcessEnv = { ...env };
  for (const [option, variable] of Object.entries(VARIABLES)) {
    const value = parsed.options[option];
    if (typeof value === 'string') result[variable] = value;
  }
  return result;
}

export function fleetOf(parsed: ParsedCommand): string {
  return String(parsed.options['fleet']);
}
