/** Who gives an order, for the record that the fleet keeps of it. */
import { hostname, userInfo } from 'node:os';
import type { EnvironmentSpec } from '../spec.js';

export const OPERATOR_VARIABLE: EnvironmentSpec = {
  name: 'ATLAS_OPERATOR',
  description: 'who you are to the fleet and to other operators (default: user@host)',
};

/** A name is shown in lists; what is longer is a mistake. */
const MAX_LENGTH = 100;

/** `$ATLAS_OPERATOR`, else `user@host`. */
export function operatorOf(env: NodeJS.ProcessEnv): string {
  const given = (env[OPERATOR_VARIABLE.name] ?? '').trim();
  return given === '' ? `${userName()}@${hostname().split('.')[0]}` : given.slice(0, MAX_LENGTH);
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // A user without an entry in the password file, as containers have them.
    return `uid-${process.getuid?.() ?? 'unknown'}`;
  }
}
