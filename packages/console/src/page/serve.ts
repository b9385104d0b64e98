/** The page as a command: serves on the loopback until the command is ended. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { logTo } from "@x/redlock-core";
import { Cluster, type Redis } from "ioredis";
import { pino } from "pino";
import type { CommandContext, IsGood } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { layoutOf, type OperatedQueue, openOperator } from "../operator.ts";
import { printable } from "../output.ts";
import { LOOPBACK_HOSTS } from "./guard.ts";
import { nodeListener } from "./node-listener.ts";
import { createPage } from "./page.ts";

/** The queues that a command shows. */
export interface ShownQueues {
  /** Queues to show. If empty, all queues that are found. */
  readonly queue: readonly string[];
  /** BullMQ's prefix. */
  readonly prefix: string;
}

export interface ServeOptions extends ShownQueues {
  /** The address to listen on. */
  readonly host: string;
  /** The port to listen on; 0 for a free port. */
  readonly port: number;
  readonly actions: boolean;
  /** Host names of the page, in addition to the loopback names. */
  readonly allowHost: readonly string[];
  /** Elections to show, in addition to the elections that are found. */
  readonly election: readonly string[];
}

/** The most SCAN steps of 1,000 keys when searching for queues, and the most found queues that are shown. */
const MOST_STEPS = 200;
const MOST_QUEUES = 20;
/** The name of a partition, which contains the name of its queue. */
const PARTITION = /^\{(.+)-\d+of\d+\}$/;
const BY_NUMBER = new Intl.Collator("en", { numeric: true });
const LOOPBACK = /^(127(\.\d+){3}|::1|localhost)$/;

/** Serves the page until the terminal's signal aborts. */
export async function servePage(context: CommandContext, options: ServeOptions): Promise<IsGood> {
  const { connections, output, terminal } = context;
  const redlock = await connections.redlock();
  const queues = await queuesOf(context, options);
  const hosts = [...LOOPBACK_HOSTS, ...options.allowHost];
  const page = createPage({ redlock, queues, elections: options.election, hosts, actions: options.actions });
  const server = createServer(nodeListener(page));
  const { port } = await new Promise<AddressInfo>((resolve, reject) => {
    server.once("error", (error) => {
      reject(new ConsoleFailure(`cannot listen: ${error.message}`, "Name another --port or --host."));
    });
    server.listen(options.port, options.host, () => resolve(server.address() as AddressInfo));
  });
  const logger = pino({ base: null, level: "warn" }, { write: (line) => terminal.writeError(printable(line)) });
  const stopLogging = logTo(logger);
  connections.defer(async () => {
    stopLogging();
    await page.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const shown = LOOPBACK.test(options.host) ? options.host : (options.allowHost[0] ?? "localhost");
  const url = `http://${shown.includes(":") ? `[${shown}]` : shown}:${port}/`;
  output.answer({ url }, () => {
    output.line(`${url}  (${options.actions ? "actions are allowed" : "read-only"}; Ctrl-C ends it)`);
    if (!LOOPBACK.test(options.host)) {
      output.line("There is no login: everybody who reaches this address sees the page.", "warn");
    }
  });
  await new Promise<void>((resolve) => {
    if (terminal.signal.aborted) resolve();
    else terminal.signal.addEventListener("abort", () => resolve(), { once: true });
  });
  return true;
}

/**
 * Opens the operators of the queues. Returns none if the queues' Redis is away, because a page of the other nodes is
 * most useful in such an outage.
 */
export async function queuesOf(
  { connections, terminal }: CommandContext,
  { queue, prefix }: ShownQueues,
): Promise<readonly OperatedQueue[]> {
  const client = await connections.queueRedis().catch((error: unknown) => {
    if (!(error instanceof ConsoleFailure)) throw error;
    terminal.writeError(`${printable(error.message)}\nNo queues are shown: they are looked for on the first node.\n`);
    return undefined;
  });
  if (client === undefined) return [];
  const names = queue.length > 0 ? [...new Set(queue)] : await queuesOfAll(client, prefix);
  if (queue.length === 0 && names.length > MOST_QUEUES) {
    terminal.writeError(`The first ${MOST_QUEUES} of ${names.length} queues are shown. Name others with --queue.\n`);
  }
  const shown = queue.length > 0 ? names : names.slice(0, MOST_QUEUES);
  const opened = await Promise.all(
    shown.map(async (name) => {
      const options = { queue: name, prefix };
      try {
        return openOperator(connections, { ...options, client, layout: await layoutOf(connections, client, options) });
      } catch (error) {
        if (!(error instanceof ConsoleFailure)) throw error;
        terminal.writeError(`${printable(`${name} is not shown: ${error.message}`)}\n`);
        return undefined;
      }
    }),
  );
  return opened.filter((each) => each !== undefined);
}

async function queuesOfAll(client: Redis | Cluster, prefix: string): Promise<readonly string[]> {
  const servers = client instanceof Cluster ? client.nodes("master") : [client];
  const found = await Promise.all(servers.map((server) => queuesIn(server, prefix)));
  // All partitions of a queue are shown as one queue.
  const names = found.flat().map((name) => PARTITION.exec(name)?.[1] ?? name);
  return [...new Set(names)].sort(BY_NUMBER.compare);
}

/** Returns the queues of a server, from the first part of a large Redis. */
async function queuesIn(client: Redis, prefix: string): Promise<readonly string[]> {
  const names = new Set<string>();
  let cursor = "0";
  for (let step = 0; step < MOST_STEPS; step += 1) {
    const [next, keys] = await client.scan(cursor, "MATCH", `${escaped(prefix)}:*:meta`, "COUNT", 1_000);
    for (const key of keys) {
      const name = key.slice(prefix.length + 1, -":meta".length);
      // A name with a colon belongs to a longer prefix: BullMQ refuses colons in queue names.
      if (!name.includes(":")) names.add(name);
    }
    cursor = next;
    if (cursor === "0") break;
  }
  return [...names];
}

function escaped(glob: string): string {
  return glob.replaceAll(/[*?[\]\\]/g, String.raw`\$&`);
}
