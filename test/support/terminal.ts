/**
 * What a terminal shows after a program has written to it: enough of a VT100 for full-screen views. A sequence that it
 * does not know fails the test, since it might be one that leaves the terminal changed.
 */
export class FakeTerminal {
  columns: number;
  rows: number;
  cursorShown = true;
  /** Whether the program is writing a frame that is to be shown as a whole. */
  updating = false;
  /** Whether the program is on the alternate screen. */
  alternate = false;
  #screen: string[][];
  /** The ordinary screen, while the alternate one is shown. */
  #saved: { readonly screen: string[][]; readonly row: number; readonly column: number } | undefined;
  #row = 0;
  #column = 0;
  #rest = '';
  /** The style in which text would be shown, by what ends it. */
  readonly #style = new Set<string>();

  constructor(columns: number, rows: number) {
    this.columns = columns;
    this.rows = rows;
    this.#screen = blank(columns, rows);
  }

  /** The lines that are shown, without blanks at their ends. */
  get lines(): string[] {
    return this.#screen.map((line) => line.join('').trimEnd());
  }

  /** Whether text would be shown in a colour or style of the program. */
  get styled(): boolean {
    return this.#style.size > 0;
  }

  get text(): string {
    return this.lines.join('\n');
  }

  resize(columns: number, rows: number): void {
    const old = this.#screen;
    this.columns = columns;
    this.rows = rows;
    this.#screen = blank(columns, rows);
    for (let row = 0; row < Math.min(rows, old.length); row += 1)
      for (let column = 0; column < columns; column += 1) this.#screen[row]![column] = old[row]![column] ?? ' ';
    this.#row = Math.min(this.#row, rows - 1);
  }

  write(data: string): void {
    let text = this.#rest + data;
    this.#rest = '';
    while (text !== '') {
      if (text[0] === '\u001b') {
        const sequence = /^\u001b\[([0-9;?]*)([a-zA-Z])/.exec(text);
        if (sequence === null) {
          if (/^\u001b(\[[0-9;?]*)?$/.test(text)) {
            // The rest of the sequence comes with the next piece.
            this.#rest = text;
            return;
          }
          throw new Error(`Not a sequence that the terminal knows: ${JSON.stringify(text.slice(0, 20))}`);
        }
        this.#control(sequence[1]!, sequence[2]!);
        text = text.slice(sequence[0].length);
      } else {
        const [character] = text;
        this.#put(character!);
        text = text.slice(character!.length);
      }
    }
  }

  #control(parameters: string, final: string): void {
    switch (final) {
      case 'm':
        for (const parameter of parameters.split(';')) this.#setStyle(Number(parameter));
        return;
      case 'H': {
        const [row = '1', column = '1'] = parameters.split(';');
        this.#row = Math.min(this.rows, Number(row || 1)) - 1;
        this.#column = Math.min(this.columns, Number(column || 1)) - 1;
        return;
      }
      case 'K':
        this.#screen[this.#row]!.fill(' ', this.#column);
        return;
      case 'A':
        this.#row = Math.max(0, this.#row - Number(parameters || 1));
        return;
      case 'J':
        if (parameters === '2') this.#screen = blank(this.columns, this.rows);
        else if (parameters === '' || parameters === '0') {
          this.#screen[this.#row]!.fill(' ', this.#column);
          for (const line of this.#screen.slice(this.#row + 1)) line.fill(' ');
        } else break;
        return;
      case 'h':
      case 'l':
        if (this.#mode(parameters, final === 'h')) return;
        break;
    }
    throw new Error(`Not a sequence that the terminal knows: ESC[${parameters}${final}`);
  }

  #setStyle(style: number): void {
    if (style === 0) this.#style.clear();
    else if (style === 1 || style === 2) this.#style.add('22');
    else if (style === 7) this.#style.add('27');
    else if ((style >= 30 && style <= 37) || (style >= 90 && style <= 97)) this.#style.add('39');
    else if (!this.#style.delete(String(style)) && ![22, 27, 39].includes(style))
      throw new Error(`Not a style that the terminal knows: ${style}`);
  }

  #mode(mode: string, on: boolean): boolean {
    switch (mode) {
      case '?25':
        this.cursorShown = on;
        return true;
      case '?2026':
        this.updating = on;
        return true;
      case '?1049':
        if (on) {
          this.#saved = { screen: this.#screen, row: this.#row, column: this.#column };
          this.#screen = blank(this.columns, this.rows);
        } else if (this.#saved !== undefined) {
          const { screen, row, column } = this.#saved;
          this.#saved = undefined;
          this.#screen = screen;
          this.resize(this.columns, this.rows);
          this.#row = Math.min(row, this.rows - 1);
          this.#column = column;
        }
        this.alternate = on;
        return true;
      default:
        return false;
    }
  }

  #put(character: string): void {
    if (character === '\r') this.#column = 0;
    else if (character === '\n') this.#lineFeed();
    else {
      if (this.#column >= this.columns) {
        this.#column = 0;
        this.#lineFeed();
      }
      this.#screen[this.#row]![this.#column] = character;
      this.#column += 1;
    }
  }

  #lineFeed(): void {
    if (this.#row < this.rows - 1) this.#row += 1;
    else this.#screen = [...this.#screen.slice(1), ...blank(this.columns, 1)];
  }
}

function blank(columns: number, rows: number): string[][] {
  return Array.from({ length: rows }, () => Array.from({ length: columns }, () => ' '));
}
