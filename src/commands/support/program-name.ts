/** How the user calls the program, for commands to be typed again. */
export function programOf(env: NodeJS.ProcessEnv): string {
  return env['npm_command'] === 'exec' ? 'npx atlas' : 'atlas';
}
