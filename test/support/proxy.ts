/**
 * A TCP proxy between a worker and its server, on the loopback address, with the faults of a network: cut (connections
 * are reset and refused), half-open (they stay, but nothing passes), slow (everything arrives late).
 */
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { connect } from 'node:net';
import { once } from 'node:events';
import { afterEach } from 'vitest';

type Fault = { readonly kind: 'none' | 'cut' | 'half-open' } | { readonly kind: 'slow'; readonly delayMs: number };

export interface Proxy {
  /** What the worker is to connect to. */
  readonly address: string;
  /** Resets every connection and refuses new ones. */
  cut(): void;
  /** Connections stay and new ones are taken, but nothing passes in either direction. */
  halfOpen(): void;
  /** Everything arrives later by this, in both directions. */
  slow(delayMs: number): void;
  /** Ends the fault. What a half-open connection had been given is passed on, late. */
  heal(): void;
  close(): Promise<void>;
}

const open: Proxy[] = [];

/** Closed after the test at the latest. */
export async function startProxy(targetAddress: string): Promise<Proxy> {
  const [host, port] = splitAddress(targetAddress);
  let fault: Fault = { kind: 'none' };
  const sockets = new Set<Socket>();
  const held = new Set<() => void>();

  const passOn = (from: Socket, to: Socket): void => {
    // In order, whatever the delay was when a part came.
    let last: Promise<void> = Promise.resolve();
    from.on('data', (chunk: Buffer) => {
      const arrives =
        fault.kind === 'slow'
          ? new Promise<void>((resolve) => setTimeout(resolve, (fault as { delayMs: number }).delayMs))
          : undefined;
      const before = last;
      last = (async () => {
        await before;
        await arrives;
        while (fault.kind === 'half-open' && !to.destroyed) await new Promise<void>((resolve) => held.add(resolve));
        if (!to.destroyed) to.write(chunk);
      })();
    });
    from.on('error', () => undefined);
    from.on('close', () => {
      sockets.delete(from);
      void last.then(() => to.destroy());
    });
  };
  const server = createServer((client) => {
    client.on('error', () => undefined);
    if (fault.kind === 'cut') {
      client.resetAndDestroy();
      return;
    }
    const upstream = connect(port, host);
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      sockets.add(socket);
    }
    passOn(client, upstream);
    passOn(upstream, client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  const change = (next: Fault): void => {
    fault = next;
    for (const wake of held) wake();
    held.clear();
  };
  const reset = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
    sockets.clear();
  };
  const proxy: Proxy = {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut() {
      change({ kind: 'cut' });
      reset();
    },
    halfOpen: () => {
      change({ kind: 'half-open' });
    },
    slow: (delayMs) => {
      change({ kind: 'slow', delayMs });
    },
    heal: () => {
      change({ kind: 'none' });
    },
    async close() {
      change({ kind: 'cut' });
      reset();
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      await closed;
    },
  };
  open.push(proxy);
  return proxy;
}

function splitAddress(address: string): [string, number] {
  const colon = address.lastIndexOf(':');
  return [address.slice(0, colon), Number(address.slice(colon + 1))];
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((proxy) => proxy.close()));
});
