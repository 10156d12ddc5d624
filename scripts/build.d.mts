/** Types of `build.mjs` for the tests' set-up. */
export function build(): Promise<void>;
export function isBuilt(): boolean;
