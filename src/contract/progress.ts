/** What a pinned activity reports while it works, so that any client can show it. Imports nothing. */
export interface Progress {
  /** How much is done, in `unit`. */
  readonly done: number;
  /** How much there is in all, where that is known. */
  readonly total?: number;
  /** `bytes`, `pages`, or another plain plural. */
  readonly unit: string;
  /** A few words on what is being done now. */
  readonly note?: string;
}

export function isProgress(value: unknown): value is Progress {
  return (
    typeof value === 'object' &&
    value !== null &&
    'done' in value &&
    typeof value.done === 'number' &&
    'unit' in value &&
    typeof value.unit === 'string'
  );
}
