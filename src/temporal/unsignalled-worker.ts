/** A Worker whose end is its owner's, for Workers that have to stop in an order. */
import { Worker, type WorkerOptions } from '@temporalio/worker';

/**
 * A Worker that no signal stops. The SDK's Runtime shuts every Worker of its process down at the first signal, all at
 * once; a session that is being drained needs its Workers for longer.
 */
export class UnsignalledWorker extends Worker {
  static override async create(options: WorkerOptions): Promise<UnsignalledWorker> {
    // The SDK makes an instance of the class it is called on, and says that it is a Worker.
    return (await super.create(options)) as UnsignalledWorker;
  }

  /** What the Runtime calls at a signal. */
  override shutdown(): void {
    // See end().
  }

  override async run(): Promise<void> {
    // The SDK has a Worker that can not go on shut itself down, by the same method.
    const failing = this.unexpectedErrorSubject.subscribe({
      error: () => {
        this.end();
      },
    });
    try {
      await super.run();
    } finally {
      failing.unsubscribe();
    }
  }

  /** Begins the shutdown of a Worker that runs; {@link run} resolves at its end. */
  end(): void {
    if (this.state === 'RUNNING') super.shutdown();
  }
}
