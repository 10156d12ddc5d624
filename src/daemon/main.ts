/** What `atlasd` does: configuration, state directory, daemon, and the signals that stop it. */
import type { RunCommand } from '../commands/spec.js';
import { AtlasError } from '../contract/errors.js';
import { EXIT } from '../contract/exit-codes.js';
import { createLogger } from '../terminal/log.js';
import { VERSION } from '../contract/version.js';
import { configOf, stateDirectoryOf } from './inputs.js';
import { defaultWorkerName, openStateDirectory } from './state-directory.js';

export const run: RunCommand = async (context, parsed) => {
  if (parsed.options['check'] === true) {
    const { check } = await import('./check.js');
    return await check(context, parsed);
  }
  if (parsed.given.has('format')) {
    throw new AtlasError('Usage', '--format says how to print what --check finds; the daemon prints nothing.', {
      next: 'Add --check, or choose the form of log lines with --log-format.',
    });
  }
  const config = configOf(context, parsed);
  const logFormat = config.logFormat === 'auto' ? (context.stderr.isTTY ? 'text' : 'json') : config.logFormat;
  const log = createLogger({ level: config.logLevel, format: logFormat, stream: context.stderr });
  const path = stateDirectoryOf(context, config);
  const directory = await openStateDirectory(path, {
    fleet: config.fleet,
    name: config.name ?? (await defaultWorkerName(path)),
  });
  const { Daemon } = await import('./daemon.js');
  const daemon = new Daemon({ config, directory, log, env: context.env, logFormat, version: VERSION });
  const interrupted = new Promise<void>((resolve) => {
    let signals = 0;
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(name, () => {
        signals += 1;
        if (signals === 1) {
          resolve();
          return;
        }
        // Whoever sends a second signal does not want to wait. What is held stays in the ledger.
        daemon.killNow();
        process.exit(EXIT.interrupted);
      });
    }
  });
  try {
    await Promise.race([daemon.start(), daemon.failed, interrupted]);
    await Promise.race([daemon.failed, daemon.finished, interrupted]);
    return EXIT.done;
  } finally {
    await daemon.stop();
    await directory.release();
  }
};
