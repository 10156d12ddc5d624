/**
 * Lines that a terminal redraws in place, in plain escape sequences: no library has to be loaded for them.
 *
 * Owns the cursor while it is open: it is hidden, and shown again at the end, whatever ends the process.
 */
import { displayWidth, truncate } from './format.js';

const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';
const ERASE_BELOW = '\u001b[J';
const ESCAPES = /\u001b\[[0-9;]*m/g;
const RESET = '\u001b[0m';
const DEFAULT_ROWS = 24;
const DEFAULT_COLUMNS = 80;

export class LiveLines {
  #shown: readonly string[] = [];
  #last: readonly string[] = [];
  #open = true;
  readonly #onResize = (): void => this.draw(this.#last);
  readonly #onExit = (): void => void this.#stream.write(SHOW_CURSOR);
  readonly #stream: NodeJS.WriteStream;

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
    stream.write(HIDE_CURSOR);
    stream.on('resize', this.#onResize);
    // A second Ctrl-C ends the process without unwinding anything.
    process.once('exit', this.#onExit);
  }

  draw(lines: readonly string[]): void {
    if (!this.#open) return;
    this.#last = lines;
    const columns = (this.#stream.columns || DEFAULT_COLUMNS) - 1;
    // One row stays free for the cursor; a frame that is taller than the screen could not be redrawn.
    const rows = Math.max(2, (this.#stream.rows || DEFAULT_ROWS) - 1);
    const hidden = lines.length - rows;
    const kept = hidden > 0 ? [...lines.slice(0, rows - 1), `… ${hidden + 1} more lines`] : lines;
    const frame = kept.map((line) => cut(line, columns));
    this.#stream.write(`${this.#home(columns + 1)}${frame.map((line) => `${line}\n`).join('')}`);
    this.#shown = frame;
  }

  /** Erases what is shown, so that something else may be written; the next `draw` begins below that. */
  clear(): void {
    if (!this.#open) return;
    this.#stream.write(this.#home(this.#stream.columns || DEFAULT_COLUMNS));
    this.#shown = [];
  }

  /** Leaves the last state on the screen and gives the terminal back. May be called twice. */
  end(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#stream.off('resize', this.#onResize);
    process.off('exit', this.#onExit);
    this.#stream.write(SHOW_CURSOR);
  }

  /** To where the last frame began. A terminal that became narrower has wrapped its lines meanwhile. */
  #home(columns: number): string {
    const rows = this.#shown.reduce((sum, line) => sum + Math.max(1, Math.ceil(widthOf(line) / columns)), 0);
    return `\r${rows === 0 ? '' : `\u001b[${rows}A`}${ERASE_BELOW}`;
  }
}

function widthOf(line: string): number {
  return displayWidth(line.replace(ESCAPES, ''));
}

/** Cuts a line that may have colours in it. */
function cut(line: string, width: number): string {
  if (widthOf(line) <= width) return line;
  let result = '';
  let left = width;
  for (const part of line.split(/(\u001b\[[0-9;]*m)/)) {
    if (part.startsWith('\u001b[')) {
      result += part;
      continue;
    }
    const partWidth = displayWidth(part);
    if (partWidth < left) {
      result += part;
      left -= partWidth;
      continue;
    }
    // There is more behind it, or the whole line would have fitted.
    return `${result}${truncate(`${part} `.padEnd(left + 1), left)}${RESET}`;
  }
  return result;
}
