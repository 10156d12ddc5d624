/**
 * What the scripts share: the project's root, running programs, hashing inputs. Plain Node without dependencies, since
 * these scripts run on a fresh clone, and in syntax that a Node too old for Atlas still parses, so that it is told.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** Progress goes to stderr: the output of what is run may be data. */
export function say(message) {
  process.stderr.write(`${message}\n`);
}

export function seconds(sinceMs) {
  return `${((Date.now() - sinceMs) / 1000).toFixed(1)} s`;
}

/** An error that needs no stack: the message says it all. */
export class ScriptError extends Error {}

/** Runs the script's main function, with an error on one line and exit code 1. */
export async function main(run) {
  try {
    process.exitCode = await run();
  } catch (error) {
    say(error instanceof ScriptError ? error.message : String(error.stack ?? error));
    process.exitCode = 1;
  }
}

/** Whether the module is the program that was started, and not an import of another. */
export function isMain(url) {
  return process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(url);
}

/**
 * Runs a program in the foreground and resolves to its exit code. A signal that reaches only this process is passed
 * on; this process then waits for the program, which cleans up after itself.
 */
export function run(command, args, options = {}) {
  return new Promise((done, reject) => {
    const child = spawn(command, args, { cwd: ROOT, stdio: 'inherit', ...options });
    const forward = (signal) => child.kill(signal);
    process.on('SIGTERM', forward);
    process.on('SIGHUP', forward);
    // A Ctrl-C reaches the whole foreground group; passing it on as well would count as a second one.
    const ignore = () => undefined;
    process.on('SIGINT', ignore);
    const forget = () => {
      process.off('SIGTERM', forward);
      process.off('SIGHUP', forward);
      process.off('SIGINT', ignore);
    };
    child.once('error', (error) => {
      forget();
      reject(new ScriptError(`${command} can not be run: ${error.message}`));
    });
    child.once('close', (code, signal) => {
      forget();
      done(code ?? 128 + (constants.signals[signal] ?? 0));
    });
  });
}

/** The programs of installed packages, run with this Node rather than through a shell shim. */
export function packageProgram(packageName, file) {
  return join(ROOT, 'node_modules', packageName, file);
}

/** All files under a directory, sorted, as paths from the root. */
export function filesUnder(directory, accept = () => true) {
  const found = [];
  const walk = (path) => {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const child = join(path, entry.name);
      if (entry.isDirectory()) walk(child);
      else if (accept(entry.name)) found.push(relative(ROOT, child));
    }
  };
  const start = join(ROOT, directory);
  if (existsSync(start)) walk(start);
  return found.sort();
}

/** A hash of names and contents. Times of change say little after a checkout. */
export function hashFiles(paths) {
  const hash = createHash('sha256');
  for (const path of paths) {
    const content = readFileSync(join(ROOT, path));
    hash.update(`${path}\0${content.length}\0`).update(content);
  }
  return hash.digest('hex');
}

export function readJson(path) {
  try {
    return JSON.parse(readFileSync(join(ROOT, path), 'utf8'));
  } catch {
    return undefined;
  }
}
