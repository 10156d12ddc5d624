/** A word for a POSIX shell that reaches it unchanged. */
export function quote(word: string): string {
  return `'${word.replace(/'/g, `'\\''`)}'`;
}
