/** The options of `atlas run` as its parts read them, and the commands that it prints. */
import type { ParsedCommand } from '../spec.js';
import type { ServeAddress } from './parse.js';
import { programOf } from './program-name.js';
import { DEFAULT_SERVE_ADDRESS } from './transfer-server.js';

export function isJson(parsed: ParsedCommand): boolean {
  return parsed.options['format'] === 'json';
}

export function textOption(parsed: ParsedCommand, name: string): string | undefined {
  const value = parsed.options[name];
  return typeof value === 'string' ? value : undefined;
}

export function serveAddressOf(parsed: ParsedCommand): ServeAddress {
  return (parsed.options['serveAddress'] as ServeAddress | undefined) ?? DEFAULT_SERVE_ADDRESS;
}

/** The connection flags that were given, so that a printed command reaches the same server and fleet. */
export function connectionFlags({ options, given }: ParsedCommand): string {
  return ['address', 'namespace', 'profile', 'fleet']
    .filter((name) => given.has(name))
    .map((name) => ` --${name} ${String(options[name])}`)
    .join('');
}

export function attachCommand(parsed: ParsedCommand, workflowId: string): string {
  return `${programOf(process.env)} run --attach ${workflowId}${connectionFlags(parsed)}`;
}
