/** Names that no other test uses. */
import { randomBytes } from 'node:crypto';

/** A fleet of its own keeps a test's workers, sessions and queues apart. Fleet names have no hyphen. */
export function uniqueFleet(prefix = 't'): string {
  return `${prefix}${randomBytes(5).toString('hex')}`;
}

/** For workflow ids. */
export function uniqueId(prefix: string): string {
  return `${prefix}-${randomBytes(5).toString('hex')}`;
}
