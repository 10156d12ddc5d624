/**
 * Whether a stream takes colour and live views, and the few styles Atlas uses. Imports nothing.
 *
 * Colour only repeats what the words already say, so that NO_COLOR and a screen reader lose nothing.
 */

interface OutputStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

export interface Style {
  readonly enabled: boolean;
  bold(text: string): string;
  dim(text: string): string;
  red(text: string): string;
  green(text: string): string;
  yellow(text: string): string;
  cyan(text: string): string;
}

/** Colour is for terminals; NO_COLOR (any value but an empty one) and TERM=dumb turn it off, FORCE_COLOR turns it on. */
export function wantsColour(stream: OutputStream, env: Environment): boolean {
  if ((env['NO_COLOR'] ?? '') !== '') return false;
  if (env['TERM'] === 'dumb') return false;
  const forced = env['FORCE_COLOR'];
  if (forced !== undefined && forced !== '') return forced !== '0' && forced !== 'false';
  return stream.isTTY === true;
}

/** A live view redraws itself: it needs a terminal that can move the cursor, and nobody reading a log afterwards. */
export function wantsLiveView(stream: OutputStream, env: Environment): boolean {
  return stream.isTTY === true && env['TERM'] !== 'dumb' && (env['CI'] ?? '') === '';
}

/** The width to fit output into, or undefined where nothing must be cut: a pipe or a file. */
export function terminalWidth(stream: OutputStream): number | undefined {
  if (stream.isTTY !== true) return undefined;
  // A terminal that does not know its size reports 0 or nothing.
  return stream.columns !== undefined && stream.columns > 0 ? stream.columns : 80;
}

export function styleFor(stream: OutputStream, env: Environment): Style {
  const enabled = wantsColour(stream, env);
  const wrap =
    (open: number, close: number) =>
    (text: string): string =>
      enabled ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return {
    enabled,
    bold: wrap(1, 22),
    dim: wrap(2, 22),
    red: wrap(31, 39),
    green: wrap(32, 39),
    yellow: wrap(33, 39),
    cyan: wrap(36, 39),
  };
}
