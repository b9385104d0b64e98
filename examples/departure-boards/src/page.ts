/** The live page of a run: its lock nodes, leaders and airports, in a browser on this machine. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createPage, nodeListener, type Page } from "@x/console/page";
import { Redlock } from "@x/redlock-core";
import { ExclusiveQueue } from "@x/workers";
import { electionName, leaseMs, queueName, type Settings } from "./settings.ts";

export interface LivePage {
  readonly url: string;
  /** Shows a line to whoever has the page open, as a mark on its time line. */
  note(text: string, kind: "note" | "fault"): void;
  close(): Promise<void>;
}

const refreshMs = 500;

/** Where the page listens. In a container it is every address, because the loopback has no browser there. */
interface Place {
  readonly host: string;
  /** 0: a free port. */
  readonly port: number;
}

/** Returns the place that the environment names for the page of a run in containers; undefined: no page is wanted. */
export function placeFrom({ PAGE_PORT: port = "" }: NodeJS.ProcessEnv): Place | undefined {
  if (port === "") return undefined;
  if (!/^\d+$/.test(port) || Number(port) > 65_535)
    throw new RangeError(`PAGE_PORT must be a port from 0 to 65535, got ${port}`);
  return { host: "0.0.0.0", port: Number(port) };
}

/** The place of the page of a run on this machine. */
export const loopback: Place = { host: "127.0.0.1", port: 0 };

/**
 * Serves the page, which watches from the first second on, even before a browser opens it. It only reads, and answers only for
 * the host names of the loopback.
 */
export async function openPage(
  { prefix, redisUrl, lockRedisUrls, naive }: Settings,
  { host, port: wanted }: Place,
): Promise<LivePage> {
  const redlock = new Redlock(lockRedisUrls, { ttl: leaseMs, maxTtl: leaseMs, keyPrefix: prefix });
  // Plain workers have no keys.
  const queues = naive ? [] : [boardQueue(redisUrl, prefix)];
  const page = createPage({ redlock, elections: [electionName], queues, refresh: refreshMs });
  const watching = watch(page);
  const server = createServer(nodeListener(page));
  const close = async (): Promise<void> => {
    await page.close();
    await watching;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await Promise.all(queues.map((queue) => queue.close()));
    await redlock.close();
  };
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(wanted, host, resolve);
    });
  } catch (error) {
    await close();
    throw error;
  }
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, note: (text, kind) => page.note(text, { kind }), close };
}

/** Reads the live events until the page is closed. Without a reader, the page looks at nothing. */
async function watch(page: Page): Promise<void> {
  const { body } = await page(new Request("http://localhost/events?changes=1"));
  for await (const _ of body ?? []);
}

/** The queue of the events, which the page asks about the airports. */
function boardQueue(url: string, prefix: string): ExclusiveQueue {
  const queue = new ExclusiveQueue(queueName, {
    connection: { url, maxRetriesPerRequest: null },
    prefix: `${prefix}bull`,
  });
  // Connection errors heal; the page shows them.
  queue.on("error", () => undefined);
  return queue;
}
