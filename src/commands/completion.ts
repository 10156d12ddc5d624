/** `atlas completion`: the script that lets a shell complete the command line of atlas. */
import type { CommandSpec } from './spec.js';

export const completion: CommandSpec = {
  path: ['completion'],
  summary: 'Print a completion script for a shell.',
  description: [
    'The script completes commands, options, their choices and files by itself. Names of workers and ids of sessions it asks of the Temporal server each time, with the --fleet, --address, --namespace and --profile that stand on the line, and else with those of the environment; a server that does not answer within two seconds offers none.',
    'The script is made for this version: print it again after an update.',
  ],
  arguments: [{ name: 'shell', description: 'the shell', required: true, choices: ['bash', 'zsh', 'fish'] }],
  options: [],
  examples: [
    { command: 'source <(atlas completion bash)', explanation: 'in ~/.bashrc; for this shell only, at the prompt' },
    {
      command: 'atlas completion bash > ~/.local/share/bash-completion/completions/atlas',
      explanation: 'where the package bash-completion is installed, which loads it when it is first needed',
    },
    {
      command: 'atlas completion zsh > "${fpath[1]}/_atlas"',
      explanation: 'for zsh, whose ~/.zshrc has `autoload -U compinit; compinit`',
    },
    { command: 'atlas completion fish > ~/.config/fish/completions/atlas.fish', explanation: 'for fish' },
  ],
  exitCodes: [],
  load: async () => (await import('./support/completion/print.js')).printCompletion,
};
