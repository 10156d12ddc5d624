/** The part of fs-native-extensions, which ships no types, that Atlas uses. */
declare module 'fs-native-extensions' {
  /** Locks the whole file for this open file description; false when another one holds it. */
  export function tryLock(fd: number): boolean;
}
