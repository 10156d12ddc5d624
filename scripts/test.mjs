/**
 * `npm test`: makes the clone ready and runs every test. Arguments go to vitest. Its last line is
 * `N passed, N failed, N skipped`, from the report of the runner.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensure } from './ensure.mjs';
import { main, packageProgram, run, say } from './lib.mjs';

await main(async () => {
  await ensure();
  const directory = mkdtempSync(join(tmpdir(), 'atlas-test-report-'));
  const report = join(directory, 'report.json');
  try {
    const code = await run(process.execPath, [
      packageProgram('vitest', 'vitest.mjs'),
      'run',
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
      ...process.argv.slice(2),
    ]);
    return summarize(report, code);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

function summarize(path, code) {
  let report;
  try {
    report = JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    say(`The test runner ended with code ${code} and left no report.`);
    console.log('0 passed, 1 failed, 0 skipped');
    return 1;
  }
  // A file that could not be loaded has no tests that could fail.
  const broken = report.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
  );
  for (const file of broken) say(`${file.name} failed outside its tests: ${file.message}`);
  const passed = report.numPassedTests;
  const failed = report.numFailedTests + broken.length;
  const skipped = report.numPendingTests + report.numTodoTests;

  let exitCode = code !== 0 ? code : failed > 0 ? 1 : 0;
  if (code !== 0 && failed === 0) say(`The test runner ended with code ${code}: see its errors above.`);
  if (passed + failed === 0) {
    say('No test ran.');
    exitCode ||= 1;
  }
  console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
  return exitCode;
}
