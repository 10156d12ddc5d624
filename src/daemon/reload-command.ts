/** `atlasd reload`: asks the atlasd of this host to run the code on disk, and shows how far it is. */
import type { RunCommand } from '../commands/spec.js';
import { formatDurationMs } from '../contract/duration.js';
import { EXIT } from '../contract/exit-codes.js';
import type { ReloadResult, ReloadStep } from '../contract/local.js';
import { localReload } from '../local/client.js';
import { count, formatAge, formatDuration } from '../terminal/format.js';
import { LiveLines } from '../terminal/live-lines.js';
import { JSON_VERSION } from '../terminal/records.js';
import { wantsLiveView } from '../terminal/style.js';
import { socketPathOf } from './inputs.js';

/** How often a terminal is shown how long it has taken. */
const TICK_MS = 1_000;

export const run: RunCommand = async (context, parsed) => {
  const { stdout, stderr, signal, env } = context;
  const request = {
    timeoutMs: parsed.options['timeout'] as number,
    force: parsed.options['force'] === true,
  };
  const display = wantsLiveView(stderr, env) ? liveDisplay(stderr) : plainDisplay(stderr);
  let result: ReloadResult;
  try {
    result = await localReload(socketPathOf(context, parsed), request, signal, display.show);
  } finally {
    display.end();
  }
  stdout.write(
    parsed.options['format'] === 'json'
      ? `${JSON.stringify({ version: JSON_VERSION, reload: result }, null, 2)}\n`
      : `${resultText(result)}\n`,
  );
  return EXIT.done;
};

interface Display {
  readonly show: (step: ReloadStep) => void;
  readonly end: () => void;
}

function plainDisplay(stream: NodeJS.WriteStream): Display {
  return { show: (step) => stream.write(`${stepText(step)}\n`), end: () => undefined };
}

/** Beside each step how long it has taken, so that its bound says something. */
function liveDisplay(stream: NodeJS.WriteStream): Display {
  const live = new LiveLines(stream);
  const past: string[] = [];
  let current: { readonly step: ReloadStep; readonly sinceMs: number } | undefined;
  const draw = (): void => {
    if (current === undefined) return;
    const { step, sinceMs } = current;
    live.draw([...past, `${stepText(step)} ${formatAge(performance.now() - sinceMs)}`]);
  };
  const ticker = setInterval(draw, TICK_MS);
  return {
    show: (step) => {
      if (current !== undefined && current.step.step !== step.step) past.push(stepText(current.step));
      current = { step, sinceMs: performance.now() };
      draw();
    },
    end: () => {
      clearInterval(ticker);
      draw();
      live.end();
    },
  };
}

export function stepText(step: ReloadStep): string {
  const atMost = `at most ${formatDurationMs(Math.ceil(step.atMostMs / 1_000) * 1_000)}`;
  switch (step.step) {
    case 'loading':
      return `A new executor loads the code (${atMost}).`;
    case 'memory':
      return `Waiting for ${count(step.sessions, 'session')} in memory to end (${atMost}).`;
    case 'switching':
      return `The new executor begins to poll (${atMost}).`;
    case 'retiring':
      return step.attempts === 0
        ? `The new executor serves; the old one ends (${atMost}).`
        : `The new executor serves; ${count(step.attempts, 'step')} of the old one may end (${atMost}).`;
  }
}

export function resultText(result: ReloadResult): string {
  const { executor, interruptedAttempts, lostSessions, tookMs } = result;
  const price = [
    ...(interruptedAttempts > 0 ? [`${count(interruptedAttempts, 'step')} over the grace attempted again`] : []),
    ...(lostSessions > 0 ? [`${count(lostSessions, 'session')} in memory ended by force`] : []),
  ];
  return `Reloaded in ${formatDuration(tookMs)}: the executor is process ${executor.pid}${price.length === 0 ? '' : `; ${price.join(', ')}`}.`;
}
