/**
 * The order of test files: those that take longest first. A long one that begins last runs alone at the end, which cost
 * a minute and a half. Without a cache, as in CI, vitest only knows their sizes, which say nothing of the waiting in them.
 */
import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take more than half a minute, the longest first. */
export const SLOWEST: readonly string[] = [
  'test/integration/run.test.ts',
  'test/integration/partitions.test.ts',
  'test/chaos/chaos.test.ts',
  'test/integration/promises.test.ts',
  'test/integration/embedded-fence.test.ts',
  'test/integration/embedded.test.ts',
  'test/chaos/embedded.test.ts',
  'test/integration/faults.test.ts',
  'test/integration/drain.test.ts',
  'test/integration/reload.test.ts',
  'test/integration/memory.test.ts',
  'test/integration/orders.test.ts',
  'test/integration/sessions.test.ts',
  'test/integration/views.test.ts',
  'test/chaos/mutants.test.ts',
  'test/integration/bad-input.test.ts',
  'test/integration/disks-and-clocks.test.ts',
  'test/integration/doctor.test.ts',
  'test/integration/release.test.ts',
  'test/integration/document.test.ts',
  'test/integration/document-kill.test.ts',
  'test/integration/outages.test.ts',
  'test/integration/capability-check.test.ts',
  'test/integration/testing.test.ts',
  'test/unit/jobs/document/shared-pdfs.test.ts',
  'test/model/protocol/protocol.test.ts',
  'test/unit/jobs/document/ocr.test.ts',
  'test/golden/atlas.test.ts',
  'test/pty/top.test.ts',
  'test/integration/dev.test.ts',
  'test/integration/examples.test.ts',
  'test/integration/placement.test.ts',
  'test/integration/affinity.test.ts',
  'test/integration/example-own-activities.test.ts',
];

export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const others = await super.sort(files);
    const rank = (file: TestSpecification): number => {
      const index = SLOWEST.indexOf(relative(this.ctx.config.root, file.moduleId).replaceAll('\\', '/'));
      return index === -1 ? SLOWEST.length : index;
    };
    // Stable, so that the others keep the order that vitest gave them.
    return others.sort((a, b) => rank(a) - rank(b));
  }
}
