/**
 * The live view of a run, with ink: the stages with their states, redrawn in place while the run goes on.
 *
 * Draws what it is given and nothing else. It does not read the keyboard, so the terminal stays in its normal mode and
 * Ctrl-C is an ordinary signal.
 */
import { Box, Text, render, useStdout, type Instance } from 'ink';
import { useEffect, useState, useSyncExternalStore, type ReactElement } from 'react';
import { formatDuration, plainText, truncate } from './format.js';
import { stageDetail, stageLabel, type RunView, type StageState, type StageView } from './run-view.js';

const REDRAW_MS = 500;
const LABEL_WIDTH = 14;
const BAR_WIDTH = 20;
/** Below this width the bar is left out: the numbers say the same. */
const BAR_FROM_COLUMNS = 90;

// Each state has its own character and word, so that colour is never needed to tell them apart.
const MARKS: Readonly<Record<StageState, { readonly mark: string; readonly word: string; readonly colour?: string }>> =
  {
    waiting: { mark: '·', word: 'waiting' },
    running: { mark: '>', word: 'running', colour: 'cyan' },
    done: { mark: '✓', word: 'done', colour: 'green' },
    failed: { mark: '✗', word: 'failed', colour: 'red' },
    skipped: { mark: '-', word: 'skipped', colour: 'yellow' },
  };

export interface LiveRunView {
  update(view: RunView): void;
  /** Leaves the last state on the screen and gives the terminal back. */
  end(): Promise<void>;
}

export interface LiveOptions {
  readonly stream: NodeJS.WriteStream;
  readonly stdin: NodeJS.ReadStream;
  readonly colour: boolean;
  readonly startedAtMs: number;
  readonly now?: () => number;
}

export function startLiveRunView(first: RunView, options: LiveOptions): LiveRunView {
  const store = new ViewStore(first);
  const instance: Instance = render(
    <RunScreen store={store} colour={options.colour} startedAtMs={options.startedAtMs} now={options.now ?? Date.now} />,
    { stdout: options.stream, stdin: options.stdin, stderr: options.stream, exitOnCtrlC: false, patchConsole: false },
  );
  return {
    update: (view) => store.set(view),
    end: async () => {
      store.finish();
      instance.unmount();
      await instance.waitUntilExit();
    },
  };
}

/** Hands the newest state to React. */
class ViewStore {
  readonly #listeners = new Set<() => void>();
  #view: RunView;
  #finished = false;

  constructor(view: RunView) {
    this.#view = view;
  }

  readonly view = (): RunView => this.#view;
  readonly finished = (): boolean => this.#finished;
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  set(view: RunView): void {
    this.#view = view;
    for (const listener of this.#listeners) listener();
  }

  finish(): void {
    this.#finished = true;
    for (const listener of this.#listeners) listener();
  }
}

interface ScreenProps {
  readonly store: ViewStore;
  readonly colour: boolean;
  readonly startedAtMs: number;
  readonly now: () => number;
}

function RunScreen({ store, colour, startedAtMs, now }: ScreenProps): ReactElement {
  const view = useSyncExternalStore(store.subscribe, store.view);
  const columns = useColumns();
  const nowMs = useClock(now);
  return (
    <Box flexDirection="column" width={columns}>
      <Headline view={view} columns={columns} elapsedMs={nowMs - startedAtMs} />
      {view.stages.map((stage) => (
        <StageLine key={stage.name} stage={stage} columns={columns} nowMs={nowMs} colour={colour} />
      ))}
      {view.outageSinceMs !== null && (
        <Notice
          text={`Temporal has not answered for ${formatDuration(nowMs - view.outageSinceMs)}; waiting for it. The run is not affected.`}
          colour={colour}
        />
      )}
      {view.hint !== null && <Notice text={view.hint} colour={colour} />}
    </Box>
  );
}

function Headline({ view, columns, elapsedMs }: { view: RunView; columns: number; elapsedMs: number }): ReactElement {
  const facts = [
    view.worker === null ? undefined : `on ${plainText(view.worker)}`,
    view.redos === 0 ? undefined : `redone ${view.redos}x`,
    formatDuration(elapsedMs),
  ].filter((fact) => fact !== undefined);
  const right = facts.join(' · ');
  const room = Math.max(12, columns - right.length - 2);
  return (
    <Text>
      <Text bold>{truncate(plainText(view.document), room)}</Text>
      {`  ${right}`}
    </Text>
  );
}

interface StageLineProps {
  readonly stage: StageView;
  readonly columns: number;
  readonly nowMs: number;
  readonly colour: boolean;
}

function StageLine({ stage, columns, nowMs, colour }: StageLineProps): ReactElement {
  const { mark, word, colour: markColour } = MARKS[stage.state];
  const start = `${mark} ${stageLabel(stage.name).padEnd(LABEL_WIDTH)} ${word.padEnd(7)}`;
  const bar = columns >= BAR_FROM_COLUMNS ? barOf(stage) : '';
  const detail = stageDetail(stage, nowMs);
  const rest = truncate(detail, Math.max(0, columns - start.length - bar.length - 2));
  const isDim = stage.state === 'waiting' && colour;
  return (
    <Text dimColor={isDim} wrap="truncate">
      <Text {...(colour && markColour !== undefined ? { color: markColour } : {})}>{start}</Text>
      {bar}
      {rest === '' ? '' : `  ${rest}`}
    </Text>
  );
}

function barOf(stage: StageView): string {
  const { progress, state } = stage;
  if (state !== 'running' || progress?.total === undefined || progress.total <= 0) return '';
  const filled = Math.min(BAR_WIDTH, Math.floor((progress.done / progress.total) * BAR_WIDTH));
  return `  [${'#'.repeat(filled)}${'.'.repeat(BAR_WIDTH - filled)}]`;
}

function Notice({ text, colour }: { text: string; colour: boolean }): ReactElement {
  return (
    <Text wrap="wrap" {...(colour ? { color: 'yellow' } : {})}>
      {`! ${text}`}
    </Text>
  );
}

function useColumns(): number {
  const { stdout } = useStdout();
  const [columns, setColumns] = useState(() => stdout.columns || 80);
  useEffect(() => {
    const onResize = (): void => setColumns(stdout.columns || 80);
    stdout.on('resize', onResize);
    return () => void stdout.off('resize', onResize);
  }, [stdout]);
  // One column stays free: a line that fills the last one makes some terminals wrap, and ink count wrongly.
  return Math.max(20, columns - 1);
}

/** The time now, again and again, so that durations move while nothing else does. */
function useClock(now: () => number): number {
  const [nowMs, setNowMs] = useState(now);
  useEffect(() => {
    const timer = setInterval(() => setNowMs(now()), REDRAW_MS);
    return () => clearInterval(timer);
  }, [now]);
  // A new state may be drawn between two ticks; it must not show a time before its own.
  return Math.max(nowMs, now());
}
