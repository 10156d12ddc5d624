/** `atlasd reload`: asks the atlasd of this host to run the code on disk, and shows how far it is. */
import type { RunCommand } from '../commands/spec.js';
import { EXIT } from '../contract/exit-codes.js';
import type { ReloadResult, ReloadStep } from '../contract/local.js';
import { localReload } from '../local/client.js';
import { count, formatDuration } from '../terminal/format.js';
import { LiveLines } from '../terminal/live-lines.js';
import { JSON_VERSION } from '../terminal/records.js';
import { socketPathOf } from './inputs.js';

export const run: RunCommand = async (context, parsed) => {
  const { stdout, stderr, signal } = context;
  const request = {
    timeoutMs: parsed.options['timeout'] as number,
    force: parsed.options['force'] === true,
  };
  const live = stderr.isTTY ? new LiveLines(stderr) : undefined;
  const lines: string[] = [];
  try {
    const result = await localReload(socketPathOf(context, parsed), request, signal, (step) => {
      const line = stepText(step);
      lines.push(line);
      if (live === undefined) stderr.write(`${line}\n`);
      else live.draw(lines);
    });
    live?.end();
    stdout.write(
      parsed.options['format'] === 'json'
        ? `${JSON.stringify({ version: JSON_VERSION, reload: result }, null, 2)}\n`
        : `${resultText(result)}\n`,
    );
  } finally {
    live?.end();
  }
  return EXIT.done;
};

export function stepText(step: ReloadStep): string {
  switch (step.step) {
    case 'loading':
      return 'A new executor loads the code.';
    case 'memory':
      return `Waiting up to ${formatDuration(step.timeoutMs)} for ${count(step.sessions, 'session')} in memory.`;
    case 'switching':
      return 'The new executor begins to poll.';
    case 'retiring':
      return step.attempts === 0
        ? 'The new executor serves; the old one ends.'
        : `The new executor serves; ${count(step.attempts, 'step')} of the old one may run for ${formatDuration(step.graceMs)} more.`;
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
