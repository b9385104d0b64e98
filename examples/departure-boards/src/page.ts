/** The live page of a run: its lock nodes, leaders and airports, in a browser on this machine. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createPage, nodeListener } from "@x/console/page";
import { Redlock } from "@x/redlock-core";
import { ExclusiveWorker } from "@x/workers";
import { electionName, leaseMs, queueName, type Settings } from "./settings.ts";

export interface LivePage {
  readonly url: string;
  /** Shows a line to whoever has the page open. */
  note(text: string): void;
  close(): Promise<void>;
}

const refreshMs = 500;

/** Serves the page on a free port of the loopback. It only reads. */
export async function openPage({ prefix, redisUrl, lockRedisUrls, naive }: Settings): Promise<LivePage> {
  const redlock = new Redlock(lockRedisUrls, { ttl: leaseMs, maxTtl: leaseMs, keyPrefix: prefix });
  // Plain workers have no keys.
  const workers = naive ? [] : [askingWorker(redisUrl, prefix)];
  const page = createPage({ redlock, elections: [electionName], queues: workers, refresh: refreshMs });
  const server = createServer(nodeListener(page));
  const close = async (): Promise<void> => {
    await page.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await Promise.all(workers.map((worker) => worker.close()));
    await redlock.close();
  };
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(0, "127.0.0.1", resolve);
    });
  } catch (error) {
    await close();
    throw error;
  }
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, note: (text) => page.note(text), close };
}

/** A worker that takes no job: it answers who has which airport. */
function askingWorker(url: string, prefix: string): ExclusiveWorker {
  const worker = new ExclusiveWorker(queueName, null, {
    connection: { url, maxRetriesPerRequest: null },
    prefix: `${prefix}bull`,
    autorun: false,
    key: () => undefined,
  });
  // Connection errors heal; the page shows them.
  worker.on("error", () => undefined);
  return worker;
}
