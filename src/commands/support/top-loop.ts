/**
 * Runs `atlas top`: reads the fleet again and again, hands keys and answers to the model, and does what the model says.
 * Knows neither Temporal nor the shape of the screen.
 */
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import {
  describeAction,
  type OrderOutcome,
  startOfTop,
  step,
  type TopEffect,
  type TopEvent,
  type TopOrder,
} from '../../terminal/top-model.js';
import type { TopData } from '../../terminal/top-panels.js';
import { wantsColour } from '../../terminal/style.js';
import type { CommandContext } from '../spec.js';
import { Pacer } from './pacer.js';

/** A fleet to look at and to give orders to. */
export interface TopSource {
  readonly fleet: string;
  readonly address: string;
  read(signal: AbortSignal): Promise<TopData>;
  /** Why a look failed, where trying again may help; undefined ends the command with the error. */
  explain(error: unknown): string | undefined;
  /** Resolves whatever becomes of it. */
  order(order: TopOrder): Promise<OrderOutcome>;
}

export interface TopOptions {
  readonly operator: string;
  readonly intervalMs: number;
}

export function needTerminal({ stdin, stdout, env }: Pick<CommandContext, 'stdin' | 'stdout' | 'env'>): void {
  const missing = !stdout.isTTY ? 'stdout is not one' : !stdin.isTTY ? 'stdin is not one' : undefined;
  const reason = missing ?? (env['TERM'] === 'dumb' ? 'TERM=dumb can not move the cursor' : undefined);
  if (reason === undefined) return;
  throw new AtlasError('Usage', `\`atlas top\` needs a terminal, and ${reason}.`, {
    next: 'Use `atlas workers ls -w` to watch a list, or `atlas workers ls -o json` in a script.',
  });
}

export async function runTopLoop(context: CommandContext, source: TopSource, options: TopOptions): Promise<ExitCode> {
  const { stdout, stdin, stderr, env, signal } = context;
  const { startLiveTop } = await import('../../terminal/top-live.js');
  signal.throwIfAborted();
  const stop = new AbortController();
  let state = startOfTop({
    fleet: source.fleet,
    address: source.address,
    operator: options.operator,
    columns: stdout.columns,
    rows: stdout.rows,
  });
  let leave: (exit: ExitCode) => void = () => undefined;
  let fail: (error: unknown) => void = () => undefined;
  const left = new Promise<ExitCode>((resolve, reject) => {
    leave = resolve;
    fail = reject;
  });

  const dispatch = (...events: readonly TopEvent[]): void => {
    const effects: TopEffect[] = [];
    for (const event of events) {
      const next = step(state, event);
      state = next.state;
      effects.push(...next.effects);
    }
    live.update(state);
    for (const effect of effects) perform(effect);
  };
  const perform = (effect: TopEffect): void => {
    switch (effect.kind) {
      case 'leave':
        leave(effect.how === 'quit' ? EXIT.done : EXIT.interrupted);
        break;
      case 'read':
        pacer.soon();
        break;
      case 'redraw':
        live.redraw();
        break;
      case 'order':
        source.order(effect.order).then((outcome) => dispatch({ kind: 'answered', id: effect.id, outcome }), fail);
        break;
    }
  };
  const read = async (): Promise<void> => {
    dispatch({ kind: 'reading', atMs: Date.now() });
    try {
      const data = await source.read(stop.signal);
      dispatch({ kind: 'read', data, atMs: Date.now() });
    } catch (error) {
      if (stop.signal.aborted) return;
      const failure = source.explain(error);
      if (failure === undefined) fail(error);
      else dispatch({ kind: 'unread', failure });
    }
  };
  const pacer = new Pacer(read, options.intervalMs);
  const onAbort = (): void => fail(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });

  const live = startLiveTop(state, {
    stdout,
    stdin,
    colour: wantsColour(stdout, env),
    now: Date.now,
    onKeys: (keys) => dispatch(...keys.map((key): TopEvent => ({ kind: 'key', key }))),
    onResize: (size) => dispatch({ kind: 'resize', ...size }),
  });
  try {
    pacer.soon();
    return await Promise.race([left, live.failed]);
  } finally {
    signal.removeEventListener('abort', onAbort);
    await live.end();
    stop.abort();
    await pacer.stop();
    for (const { action } of state.pending) {
      stderr.write(`The answer to ${describeAction(action)} was not waited for; see \`atlas workers ls\`.\n`);
    }
  }
}
