/** Faults of the host that a test gives to one atlasd: see `test/fixtures/host-faults.mjs`. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { join } from 'node:path';
import { temporaryDirectory } from './atlasd.js';

const MODULE = pathToFileURL(fileURLToPath(new URL('../fixtures/host-faults.mjs', import.meta.url))).href;

export interface HostFaultSettings {
  readonly disk?: 'full' | 'read-only';
  readonly clockSkewMs?: number;
}

export class HostFaults {
  private constructor(
    private readonly control: string,
    /** Below it the disk fails. */
    private readonly root: string,
  ) {}

  static async create(root: string): Promise<HostFaults> {
    return new HostFaults(join(await temporaryDirectory(), 'faults'), root);
  }

  /** For the environment of the process; its children inherit it. */
  get env(): NodeJS.ProcessEnv {
    return {
      NODE_OPTIONS: `--import=${MODULE}`,
      TEST_HOST_FAULTS: this.control,
      TEST_HOST_FAULTS_ROOT: this.root,
    };
  }

  /** What is wrong from now on; nothing by default. The clock takes 50 ms to follow. */
  async set(settings: HostFaultSettings = {}): Promise<void> {
    // Never half a file: the reader would take that for no fault.
    await writeFile(`${this.control}.new`, JSON.stringify(settings));
    await rename(`${this.control}.new`, this.control);
  }

  /** The calls that were made to fail until now. */
  async hits(): Promise<string[]> {
    const text = await readFile(`${this.control}.hits`, 'utf8').catch(() => '');
    return text.split('\n').filter((line) => line !== '');
  }
}
