/** The shutdown of the user's Worker, which has to wait for the sessions beside it. */
import type { Worker } from '@temporalio/worker';

const STARTED_POLL_MS = 20;

/**
 * Holds `worker.shutdown()` back, which a signal calls as well: sessions that are held need their Worker until they end.
 * The SDK has no hook for it, so the method of this one object is replaced.
 */
export class HeldShutdown {
  private readonly shutdown: () => void;
  private request: () => void = () => undefined;
  /** Resolves when the Worker was told to shut down. */
  readonly requested = new Promise<void>((resolve) => {
    this.request = resolve;
  });

  constructor(private readonly worker: Worker) {
    this.shutdown = worker.shutdown.bind(worker);
    worker.shutdown = () => {
      this.request();
    };
  }

  /** Shuts the Worker down now, if it has not ended; resolves at its end. */
  async letGo(over: Promise<void>): Promise<void> {
    this.worker.shutdown = this.shutdown;
    let isOver = false;
    void over.then(() => {
      isOver = true;
    });
    // Another plugin may take its time before it runs the Worker.
    while (!isOver && this.worker.getState() === 'INITIALIZED')
      await new Promise((resolve) => setTimeout(resolve, STARTED_POLL_MS));
    if (this.worker.getState() === 'RUNNING') this.shutdown();
    await over;
  }
}
