/** The man page of the configuration file, from the table of options in `config.ts`. Pure. */
import { manPage, type ManPage } from '../commands/man.js';
import { bold, heading, italic, item, paragraphs, prose, sentence, text, verbatim } from '../commands/support/roff.js';
import { configFileKeys, type ConfigFileKey } from './config.js';

/** Read by a test as the real file is. */
export const EXAMPLE_CONFIG = `# /etc/atlas/atlasd.toml
name = "worker-7"
state_dir = "/var/lib/atlas"
capabilities = ["gpu", "ocr"]
max_sessions = 4
# Two of the four slots are kept for sessions that ask for gpu.
reserve = { gpu = 2 }
grace = "2m"
activities = "/opt/jobs/activities.js"
workflows = "/opt/jobs/workflows.bundle.js"

# While the command fails, nothing is taken that asks for gpu.
[capability_check]
gpu = "nvidia-smi -L"

[document]
allow_files = ["/srv/documents"]
max_pages = 2000`;

export function configPage(): ManPage {
  const keys = configFileKeys();
  const tables = [...new Set(keys.map(({ table }) => table))].filter((table) => table !== undefined);
  return manPage({
    name: 'atlas.toml',
    section: 5,
    summary: 'the configuration file of atlasd',
    body: [
      ...heading('SYNOPSIS'),
      bold('/etc/atlas/atlasd.toml'),
      '.br',
      bold('~/.config/atlas/atlasd.toml'),
      '.br',
      `${bold('atlasd --config')} ${italic('file')}`,
      ...heading('DESCRIPTION'),
      ...paragraphs([
        'atlasd reads the first of these: the file that --config or ATLAS_CONFIG names; for root /etc/atlas/atlasd.toml; for others atlas/atlasd.toml under $XDG_CONFIG_HOME, or under ~/.config where that is not set. Without a file everything has its default; a file that is named must exist.',
        'The file is TOML. Its keys are the long flags of atlasd with underscores instead of hyphens. A key that does not exist is refused, with the nearest that does, and so is a value that is not allowed: atlasd then does not start, and ends with 2.',
        'A relative path is relative to the directory of the file. A duration is a string with a unit: "500ms", "30s", "10m", "1h30m".',
        'The file is read once, at the start: to apply a change, restart atlasd.',
      ]),
      ...heading('PRECEDENCE'),
      ...paragraphs([
        'What is given more than once counts in this order: the flag, the environment variable, the file, the default. Each value is taken whole: a list in the file is not added to the list of a flag. A variable that is empty counts as one that is not set.',
      ]),
      ...heading('KEYS'),
      ...keys.filter(({ table }) => table === undefined).flatMap(entry),
      ...tables.flatMap((table) => [
        `.SS "The table [${table}]"`,
        ...keys.filter((key) => key.table === table).flatMap(entry),
      ]),
      ...heading('EXAMPLE'),
      prose('A worker with two capabilities, which serves modules of its own and reads documents below one directory:'),
      ...verbatim(EXAMPLE_CONFIG),
    ],
    seeAlso: ['atlasd(8)', 'atlas(1)'],
  });
}

function entry({ key, type, description, allowed, defaultText, flag, env }: ConfigFileKey): string[] {
  return item(
    `${bold(key)} (${text(type)})`,
    sentence(description),
    `Allowed: ${allowed}.`,
    `Default: ${defaultText ?? 'none'}.`,
    `Also: ${flag}, ${env}.`,
  );
}
