/**
 * The live view of `atlas top`, with ink: draws frames and reads keys, and decides nothing.
 */
import { Box, Text, render, useInput, type Instance, type Key } from 'ink';
import { useEffect, useState, useSyncExternalStore, type ReactElement } from 'react';
import { AlternateScreen, FrameSink } from './screen.js';
import type { Line, Segment } from './top-details.js';
import { frameOf } from './top-frame.js';
import type { TopKey, TopState } from './top-model.js';

/** Durations move while nothing else does. */
const REDRAW_MS = 500;

export interface LiveTop {
  update(state: TopState): void;
  /** Paints everything anew. */
  redraw(): void;
  /** Rejects when drawing fails; never resolves otherwise. */
  readonly failed: Promise<never>;
  /** Gives the terminal back. May be called twice. */
  end(): Promise<void>;
}

export interface LiveTopOptions {
  readonly stdout: NodeJS.WriteStream;
  readonly stdin: NodeJS.ReadStream;
  readonly colour: boolean;
  readonly now: () => number;
  readonly onKeys: (keys: readonly TopKey[]) => void;
  readonly onResize: (size: { readonly columns: number; readonly rows: number }) => void;
}

export function startLiveTop(first: TopState, options: LiveTopOptions): LiveTop {
  const { stdout, stdin } = options;
  const screen = new AlternateScreen(stdout);
  const store = new StateStore({ ...first, ...screen.size });
  const onResize = (): void => {
    screen.forget();
    options.onResize(screen.size);
  };
  screen.enter();
  let instance: Instance;
  try {
    const sink = new FrameSink(screen) as unknown as NodeJS.WriteStream;
    instance = render(<TopScreen store={store} options={options} />, {
      stdout: sink,
      stderr: sink,
      stdin,
      debug: true,
      exitOnCtrlC: false,
      patchConsole: false,
    });
  } catch (error) {
    screen.leave();
    throw error;
  }
  const ended = instance.waitUntilExit();
  stdout.on('resize', onResize);
  const end = async (): Promise<void> => {
    stdout.off('resize', onResize);
    // Before ink ends, which draws once more: the last state belongs to the alternate screen.
    screen.leave();
    instance.unmount();
    // Why drawing failed is told by `failed`.
    await ended.catch(() => undefined);
  };
  return {
    update: (state) => store.set(state),
    redraw: () => screen.repaint(),
    failed: new Promise((_, reject) => {
      ended.catch((error: unknown) => reject(error instanceof Error ? error : new Error(String(error))));
    }),
    end,
  };
}

/** Hands the newest state to React. */
class StateStore {
  readonly #listeners = new Set<() => void>();
  #state: TopState;

  constructor(state: TopState) {
    this.#state = state;
  }

  readonly state = (): TopState => this.#state;
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  set(state: TopState): void {
    this.#state = state;
    for (const listener of this.#listeners) listener();
  }
}

function TopScreen({ store, options }: { store: StateStore; options: LiveTopOptions }): ReactElement {
  const state = useSyncExternalStore(store.subscribe, store.state);
  const { now, onKeys, colour } = options;
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((ticks) => ticks + 1), REDRAW_MS);
    return () => clearInterval(timer);
  }, []);
  useInput((input, key) => onKeys(keysOf(input, key)));
  return (
    <Box flexDirection="column" width={state.columns} height={state.rows}>
      {frameOf(state, now()).map((line, row) => (
        <FrameLine key={row} line={line} colour={colour} />
      ))}
    </Box>
  );
}

function FrameLine({ line, colour }: { line: Line; colour: boolean }): ReactElement {
  return (
    <Box height={1}>
      <Text wrap="truncate">
        {line.length === 0 ? ' ' : line.map((segment, index) => <FrameText key={index} {...{ segment, colour }} />)}
      </Text>
    </Box>
  );
}

function FrameText({ segment, colour }: { segment: Segment; colour: boolean }): ReactElement {
  const { text, tone, bold = false, dim = false, inverse = false } = segment;
  return (
    <Text
      bold={bold}
      dimColor={dim && colour}
      inverse={inverse}
      {...(colour && tone !== undefined ? { color: tone } : {})}
    >
      {text}
    </Text>
  );
}

const NAMED = {
  upArrow: 'up',
  downArrow: 'down',
  pageUp: 'pageUp',
  pageDown: 'pageDown',
  home: 'home',
  end: 'end',
  return: 'enter',
  escape: 'escape',
  backspace: 'backspace',
  // What most terminals send for Backspace is what ink calls Delete.
  delete: 'backspace',
} as const satisfies Partial<Record<keyof Key, TopKey['name']>>;

const CONTROLS: Readonly<Record<string, TopKey['name']>> = {
  '\r': 'enter',
  '\n': 'enter',
  '\t': 'tab',
  '\u007f': 'backspace',
  '\b': 'backspace',
  '\u0003': 'interrupt',
  '\u0015': 'clearLine',
  '\u000c': 'redraw',
};

/** The keys in what ink calls one input: what is pasted or typed fast comes in one piece. */
export function keysOf(input: string, key: Key): TopKey[] {
  if (key.tab) return [{ name: key.shift ? 'backTab' : 'tab' }];
  for (const [flag, name] of Object.entries(NAMED)) if (key[flag as keyof typeof NAMED]) return [{ name }];
  if (key.ctrl) {
    const control: Readonly<Record<string, TopKey['name']>> = {
      c: 'interrupt',
      u: 'clearLine',
      l: 'redraw',
      h: 'backspace',
    };
    const name = control[input];
    return name === undefined || name === 'text' ? [] : [{ name }];
  }
  if (key.meta) return [];
  return [...input].flatMap((character): TopKey[] => {
    const name = CONTROLS[character];
    if (name !== undefined && name !== 'text') return [{ name }];
    // Other control characters mean nothing here and must not get into a reason.
    return /[\u0000-\u001f\u007f-\u009f]/.test(character) ? [] : [{ name: 'text', text: character }];
  });
}
