import { createSocket } from "node:dgram";
import { once } from "node:events";

// Below the range from which Linux (32768) and macOS (49152) take the ports of outgoing connections, so that nobody takes a
// server's port while it is down. No more than 10,000, so that none is another's cluster bus, whose port is 10,000 higher.
export const firstPort = 10_240;
export const portCount = 10_000;

const attempts = 100;

/** A port of the loopback that no other test takes until it is disposed of, even while no server listens on it. */
export interface ReservedPort extends Disposable {
  readonly port: number;
}

/**
 * Reserves a port among all processes of this machine that ask here: it binds the UDP port of the same number, which no
 * Redis needs. The reservation ends at the latest with this process.
 * @throws Error when a hundred ports in a row are taken.
 */
export async function reservePort(): Promise<ReservedPort> {
  for (let attempt = 1; ; attempt++) {
    const port = firstPort + Math.floor(Math.random() * portCount);
    const socket = createSocket("udp4");
    try {
      const bound = once(socket, "listening");
      socket.bind({ port, address: "127.0.0.1", exclusive: true });
      await bound;
      socket.unref();
      return { port, [Symbol.dispose]: () => void socket.close() };
    } catch (error) {
      socket.close();
      if (attempt === attempts) throw error;
    }
  }
}
