/** What the command line of `atlas drain` asks for, checked. Pure. */
import { AtlasError } from '../../contract/errors.js';
import type { OnDeadline } from '../../contract/fleet.js';
import type { ParsedCommand } from '../spec.js';
import { checkChoice } from './choose-workers.js';
import { wordsOf } from './fleet-access.js';

export interface DrainAsked {
  readonly mode: 'wait' | 'no-wait' | 'monitor' | 'dry-run';
  readonly self: boolean;
  readonly json: boolean;
  readonly names: readonly string[];
  readonly deadlineMs: number | null;
  readonly onDeadline: OnDeadline;
  readonly force: boolean;
  readonly stop: boolean;
  readonly replace: boolean;
  readonly reason: string | null;
  /** Null where it was not said. */
  readonly maxParallel: number | null;
  readonly minReady: number;
}

/** Options that say how to drain, and so have no meaning where a drain is only watched. */
const ORDERING = [
  'deadline',
  'onDeadline',
  'reason',
  'maxParallel',
  'minReady',
  'stop',
  'force',
  'replace',
  'dryRun',
  'yes',
] as const;
/** Options about several workers. */
const FLEET_ONLY = ['maxParallel', 'minReady', 'monitor', 'selector', 'dryRun', 'replace'] as const;

export function drainAsked(parsed: ParsedCommand, isTerminal: boolean): DrainAsked {
  const { options, given } = parsed;
  const names = wordsOf(parsed);
  const is = (name: string): boolean => options[name] === true;
  const number = (name: string): number | null => (typeof options[name] === 'number' ? options[name] : null);
  const reason =
    typeof options['reason'] === 'string' && options['reason'].trim() !== '' ? options['reason'].trim() : null;
  const self = is('self');
  const force = is('force');
  const onDeadline: OnDeadline = force || options['onDeadline'] === 'release' ? 'release' : 'report';

  if (is('monitor'))
    refuse(
      ORDERING.find((name) => given.has(name)),
      '--monitor only watches',
    );
  if (self)
    refuse(
      FLEET_ONLY.find((name) => given.has(name)),
      '--self is about one worker',
    );
  if (self && names.length > 0) throw usage('--self is the worker of this host; it takes no names.');
  if (!self && (!is('monitor') || names.length > 0 || given.has('selector'))) checkChoice(parsed);
  if (force)
    refuse(
      (['deadline', 'onDeadline'] as const).find((name) => given.has(name)),
      '--force releases at once',
    );
  if (force && reason === null) {
    throw usage('--force ends sessions of others; say why with --reason.');
  }
  if (onDeadline === 'release' && !force && number('deadline') === null) {
    throw usage('--on-deadline release needs a --deadline; to release at once there is --force.');
  }
  const waits = typeof options['wait'] === 'boolean' ? options['wait'] : isTerminal;
  return {
    mode: is('monitor') ? 'monitor' : is('dryRun') ? 'dry-run' : waits ? 'wait' : 'no-wait',
    self,
    json: options['format'] === 'json',
    names,
    deadlineMs: force ? 0 : number('deadline'),
    onDeadline,
    force,
    stop: is('stop'),
    replace: is('replace'),
    reason,
    maxParallel: number('maxParallel'),
    minReady: number('minReady') ?? 0,
  };
}

function refuse(name: string | undefined, why: string): void {
  if (name === undefined) return;
  const flag = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  throw usage(`${why}: --${flag} has no meaning with it.`);
}

function usage(message: string): AtlasError {
  return new AtlasError('Usage', message);
}
