/** A TCP proxy, some of whose connections are dead without having been closed, while others pass. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";

interface Link {
  readonly sockets: readonly [client: Socket, server: Socket];
  isSilent: boolean;
  isSubscriber: boolean;
}

export interface Swallower {
  readonly url: string;
  /** Whether connections from now on are accepted, and every byte of them swallowed. */
  swallowsNew: boolean;
  /** Open connections that pass, and over which a SUBSCRIBE went. */
  subscriberCount(): number;
  /** Swallows every byte of these from now on. */
  silenceSubscribers(): void;
  /** Cuts the connection over which the next SUBSCRIBE comes. */
  cutNextSubscribe(): void;
  /** Resets every open connection. */
  drop(): void;
}

/** Ends with the test. */
export async function startSwallower(path: string): Promise<Swallower> {
  const links = new Set<Link>();
  let cuts = 0;
  const swallower: Swallower = {
    url: "",
    swallowsNew: false,
    subscriberCount: () => [...links].filter((link) => link.isSubscriber && !link.isSilent).length,
    silenceSubscribers: () => {
      for (const link of links) link.isSilent ||= link.isSubscriber;
    },
    cutNextSubscribe: () => {
      cuts += 1;
    },
    drop: () => {
      for (const { sockets } of links) for (const socket of sockets) socket.destroy();
    },
  };
  const listener = createServer((client) => {
    const server = connect({ path });
    const link: Link = { sockets: [client, server], isSilent: swallower.swallowsNew, isSubscriber: false };
    links.add(link);
    for (const socket of link.sockets) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        links.delete(link);
        for (const each of link.sockets) each.destroy();
      });
    }
    client.on("data", (bytes: Buffer) => {
      if (/\r\nsubscribe\r\n/i.test(bytes.toString("latin1"))) {
        link.isSubscriber = true;
        if (cuts > 0) {
          cuts -= 1;
          client.destroy();
        }
      }
      if (!link.isSilent) server.write(bytes);
    });
    server.on("data", (bytes: Buffer) => {
      if (!link.isSilent) client.write(bytes);
    });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => {
    swallower.drop();
    listener.close();
  });
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  return Object.assign(swallower, { url: `redis://127.0.0.1:${address.port}` });
}
