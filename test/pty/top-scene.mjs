/**
 * `atlas top` over a fleet that is made up, for `top.test.ts`, which looks at it from outside through a pseudo-terminal.
 * Lines of JSON on a socket say what the fleet does: `{"data": ...}` is what is read from now on, `{"failure": "..."}` that
 * it can not be read, `{"outcome": {...}}` answers the oldest open order, `{"crash": true}` and `{"reject": true}` are
 * defects. Orders are told on the same socket.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { runTopLoop } from '../../dist/commands/support/top-loop.js';
import { runMain } from '../../dist/commands/main.js';

const control = connect(Number(process.argv[2]), '127.0.0.1');
await once(control, 'connect');
const lines = createInterface({ input: control });

const revive = (_key, value) =>
  value !== null && typeof value === 'object' && 'agoMs' in value
    ? new Date(Date.now() - value.agoMs).toISOString()
    : value;
let answer = await new Promise((resolve) => lines.once('line', (line) => resolve(JSON.parse(line, revive))));
const orders = [];
lines.on('line', (line) => {
  const message = JSON.parse(line, revive);
  if (message.crash) throw new Error('a defect in the scene');
  if (message.outcome) orders.shift()(message.outcome);
  else answer = message;
});

const source = {
  fleet: 'atlas',
  address: '127.0.0.1:7233',
  read: async () => {
    if (answer.reject) throw new TypeError('the scene is broken');
    if (answer.failure !== undefined) throw Object.assign(new Error(answer.failure), { expected: true });
    return answer.data;
  },
  explain: (error) => (error.expected ? error.message : undefined),
  order: (order) => {
    control.write(`${JSON.stringify(order)}\n`);
    return new Promise((resolve) => orders.push(resolve));
  },
};

const spec = {
  path: ['top'],
  summary: 'the scene',
  arguments: [],
  options: [],
  examples: [],
  exitCodes: [],
  load: async () => (context) => runTopLoop(context, source, { operator: 'me@here', intervalMs: 20 }),
};
// The shell of the real program around it: its signals and its report of errors are part of what is looked at.
process.stdout.write('before\n');
const code = await runMain({ name: 'scene', summary: 'the scene', commands: [spec] }, ['top']);
process.stdout.write('after\n');
process.exit(code);
