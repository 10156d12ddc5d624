/** `npm run record:histories`: runs the scenarios on a real server and stores their histories. Not part of the tests. */
import { mergeConfig } from 'vitest/config';
import base from '../../vitest.config.js';

const config = mergeConfig(base, {});
config.test = { ...base.test, include: ['test/replay/record.ts'], maxWorkers: 1, testTimeout: 120_000 };
export default config;
