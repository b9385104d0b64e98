import { createSocket } from "node:dgram";
import { once } from "node:events";

// The first port, below the range from which Linux (32768) and macOS (49152) take the ports of outgoing connections, so
// that no connection takes a server's port while the server is down. There are at most 10,000 ports, so that no port is
// the cluster bus of another, which is 10,000 higher.
export const firstPort = 10_240;
export const portCount = 10_000;

const attempts = 100;

/**
 * A port of the loopback that no other test takes until the reservation is disposed of, even while no server listens on
 * the port.
 */
export interface ReservedPort extends Disposable {
  readonly port: number;
}

/**
 * Reserves a port among all processes of this machine that use this function: it binds the UDP port with the same
 * number, which Redis does not need. The reservation ends at the latest with this process.
 *
 * @throws Error if a hundred ports in a row are taken.
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
