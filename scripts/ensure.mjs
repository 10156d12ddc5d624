/**
 * Makes a clone ready to run: checks Node, installs the packages and builds, each only when it is needed.
 */
import { existsSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { build, isBuilt } from './build.mjs';
import { isMain, main, readJson, ROOT, run, say, ScriptError, seconds } from './lib.mjs';

const MIN_NODE = [20, 19];

export async function ensure() {
  checkNode();
  await ensurePackages();
  if (!isBuilt()) await build();
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > MIN_NODE[0] || (major === MIN_NODE[0] && minor >= MIN_NODE[1])) return;
  throw new ScriptError(
    `Atlas needs Node ${MIN_NODE.join('.')} or later; this is ${process.versions.node} (${process.execPath}).`,
  );
}

async function ensurePackages() {
  const reason = whyInstall();
  if (reason === undefined) return;
  const startedMs = Date.now();
  say(`Installing packages with npm ci: ${reason}. This takes about a minute the first time.`);
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  // The output goes to stderr, as this script may run in front of a program whose stdout is data.
  const code = await run(npm, ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { stdio: ['ignore', 2, 2] });
  if (code !== 0) {
    throw new ScriptError(`npm ci ended with code ${code}: see the lines above; is the package registry reachable?`);
  }
  say(`Packages installed in ${seconds(startedMs)}.`);
}

/**
 * npm writes what it has installed to a hidden lock file, at the very end. Comparing contents rather than times gets
 * a checkout of another branch right, and an install that was broken off.
 */
function whyInstall() {
  const modules = join(ROOT, 'node_modules');
  if (!existsSync(modules)) return 'there is no node_modules yet';
  // Somebody else's install, shared on purpose: not ours to replace.
  if (lstatSync(modules).isSymbolicLink()) return undefined;
  const installed = readJson('node_modules/.package-lock.json')?.packages;
  if (installed === undefined) return 'the last install did not end';
  const wanted = readJson('package-lock.json')?.packages ?? {};
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === '' || entry.link === true) continue;
    const found = installed[path];
    // Packages for other platforms are in the lock file but not installed.
    if (found === undefined ? entry.optional !== true && entry.peer !== true : found.version !== entry.version) {
      return `${path.replace(/^node_modules\//, '')} ${entry.version} is not installed`;
    }
  }
  return undefined;
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await ensure();
    return 0;
  });
}
