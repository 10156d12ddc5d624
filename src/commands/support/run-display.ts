/**
 * How a run shows itself while it goes on: a live view on a terminal, lines in a log, nothing where only JSON is wanted.
 * All of it on stderr, so that stdout carries the result alone.
 */
import { RunLines, type RunView } from '../../terminal/run-view.js';
import { wantsColour, wantsLiveView } from '../../terminal/style.js';
import type { CommandContext } from '../spec.js';

export interface RunDisplay {
  update(view: RunView): void;
  /** Leaves what was shown in place and gives the terminal back. May be called twice. */
  end(): Promise<void>;
}

export async function openRunDisplay(
  context: CommandContext,
  first: RunView,
  options: { readonly silent: boolean; readonly startedAtMs: number },
): Promise<RunDisplay> {
  const { stderr, env, stdin } = context;
  if (options.silent) return { update: () => undefined, end: () => Promise.resolve() };
  if (wantsLiveView(stderr, env)) {
    const { startLiveRunView } = await import('../../terminal/run-view-live.js');
    const view = startLiveRunView(first, {
      stream: stderr,
      stdin,
      colour: wantsColour(stderr, env),
      startedAtMs: options.startedAtMs,
    });
    let isOpen = true;
    return {
      update: (next) => view.update(next),
      end: async () => {
        if (isOpen) await view.end();
        isOpen = false;
      },
    };
  }
  const lines = new RunLines(options.startedAtMs);
  const update = (view: RunView): void => {
    for (const line of lines.next(view, Date.now())) stderr.write(`${line}\n`);
  };
  update(first);
  return { update, end: () => Promise.resolve() };
}
