/**
 * The alternate screen of a terminal: entered, painted line by line, and left as it was found however the program ends.
 *
 * ink lays out; this paints. ink's own output redraws from where it began, clears the scrollback when a view fills the
 * screen, and knows nothing of the alternate one.
 */
import { Writable } from 'node:stream';

const ENTER = '\u001b[?1049h\u001b[?25l\u001b[2J\u001b[H';
const LEAVE = '\u001b[0m\u001b[?25h\u001b[?1049l';
/** Between these a terminal that knows them shows nothing half painted; others ignore them. */
const BEGIN_UPDATE = '\u001b[?2026h';
const END_UPDATE = '\u001b[?2026l';
const ERASE_SCREEN = '\u001b[2J';
const ERASE_REST_OF_LINE = '\u001b[K';

export class AlternateScreen {
  #painted: readonly string[] = [];
  #isOpen = false;

  constructor(private readonly terminal: NodeJS.WriteStream) {}

  /** The size of the terminal. One that does not know its size reports 0 or nothing. */
  get size(): { readonly columns: number; readonly rows: number } {
    return { columns: this.terminal.columns || 80, rows: this.terminal.rows || 24 };
  }

  enter(): void {
    this.#isOpen = true;
    // Neither a second signal nor an error that nobody catches may leave the terminal without cursor; the trace of such an
    // error is printed after the monitor and so on the ordinary screen.
    process.on('exit', this.leave);
    process.on('uncaughtExceptionMonitor', this.leave);
    this.terminal.write(ENTER);
  }

  /** Shows a frame. Only lines that differ from the last one are written. */
  paint(frame: string): void {
    if (!this.#isOpen) return;
    const lines = frame.split('\n').slice(0, this.size.rows);
    let output = '';
    for (let row = 0; row < Math.max(lines.length, this.#painted.length); row += 1) {
      const line = lines[row] ?? '';
      if (line === this.#painted[row]) continue;
      output += `\u001b[${row + 1};1H${line}\u001b[0m${ERASE_REST_OF_LINE}`;
    }
    this.#painted = lines;
    if (output !== '') this.terminal.write(BEGIN_UPDATE + output + END_UPDATE);
  }

  /** After a resize what is on the terminal is not what was painted. The next frame is painted as a whole. */
  forget(): void {
    if (!this.#isOpen) return;
    this.#painted = [];
    this.terminal.write(ERASE_SCREEN);
  }

  /** Paints the last frame anew, over whatever else has been written to the terminal. */
  repaint(): void {
    const frame = this.#painted.join('\n');
    this.forget();
    this.paint(frame);
  }

  /** May be called twice. */
  readonly leave = (): void => {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    process.off('exit', this.leave);
    process.off('uncaughtExceptionMonitor', this.leave);
    this.terminal.write(LEAVE);
  };
}

/**
 * What ink takes for the terminal. In its debug mode every write is one whole frame. Its `columns` are those of the
 * screen; its `rows` have no end, so that ink never thinks that a frame fills them.
 */
export class FrameSink extends Writable {
  readonly isTTY = true;
  readonly rows = Number.POSITIVE_INFINITY;

  constructor(private readonly screen: AlternateScreen) {
    super({ decodeStrings: false });
  }

  get columns(): number {
    return this.screen.size.columns;
  }

  override _write(chunk: unknown, _encoding: BufferEncoding, done: () => void): void {
    // The cursor is the business of the screen.
    if (typeof chunk === 'string' && !/^(\u001b\[\?\d+[hl])*$/.test(chunk)) this.screen.paint(chunk);
    done();
  }
}
