/** Connections to the nodes of a command. Each is tried first, so that a node that is away is named, and why. */
import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { Redis } from "ioredis";
import { ConsoleFailure } from "./failure.ts";

const CONNECT_MS = 3_000;

export interface ConnectionOptions {
  /** The URLs of the nodes, in the order in which the services name them. */
  readonly urls: readonly string[];
  readonly keyPrefix?: string;
  readonly maxTtl?: number;
  readonly quarantine: boolean;
}

export class Connections implements AsyncDisposable {
  readonly #options: ConnectionOptions;
  readonly #closing: (() => Promise<unknown>)[] = [];

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  /** Opens the lock nodes. Throws `ConsoleFailure` if not one of them answers. */
  async redlock(): Promise<Redlock> {
    const { urls, keyPrefix, maxTtl, quarantine } = this.#options;
    const options: RedlockOptions = {
      ...(quarantine ? {} : { quarantine }),
      ...(keyPrefix === undefined ? {} : { keyPrefix }),
      ...(maxTtl === undefined ? {} : { maxTtl, ttl: Math.min(maxTtl, 30_000) }),
    };
    const redlock = new Redlock([...urls], options);
    this.#closing.push(() => redlock.close());
    const tries = await Promise.allSettled(urls.map((url) => tryUrl(url)));
    const failed = tries.find((result) => result.status === "rejected");
    if (failed !== undefined && tries.every((result) => result.status === "rejected")) throw failed.reason;
    return redlock;
  }

  /** Opens the queue's Redis, the first of the nodes. Throws `ConsoleFailure` if it does not answer. */
  async queueRedis(): Promise<Redis> {
    const [url = ""] = this.#options.urls;
    await tryUrl(url);
    const client = new Redis(url, { maxRetriesPerRequest: null });
    client.on("error", () => undefined);
    this.#closing.push(async () => client.disconnect());
    return client;
  }

  /** Closes `resource` when the command ends, before what was opened earlier. */
  defer(close: () => Promise<unknown>): void {
    this.#closing.push(close);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closing.reverse()) await close();
  }
}

async function tryUrl(url: string): Promise<void> {
  const client = new Redis(url, {
    lazyConnect: true,
    connectTimeout: CONNECT_MS,
    commandTimeout: CONNECT_MS,
    retryStrategy: null,
    maxRetriesPerRequest: 0,
  });
  // The rejection says "Connection is closed."; the event says why.
  let reason: Error | undefined;
  client.on("error", (error: Error) => {
    reason = error;
  });
  try {
    await client.connect();
    await client.ping();
  } catch (error) {
    throw new ConsoleFailure(`cannot reach ${nameOf(url)}: ${(reason ?? (error as Error)).message}`, adviceOf(reason));
  } finally {
    client.disconnect();
  }
}

/** Returns the host and port of a URL, which may have a password. */
export function nameOf(url: string): string {
  try {
    const { hostname, port, pathname } = new URL(url);
    return hostname === "" ? pathname : `${hostname}:${port === "" ? "6379" : port}`;
  } catch {
    return "the node";
  }
}

function adviceOf(reason: Error | undefined): string {
  const text = reason?.message ?? "";
  if (/ECONNREFUSED/.test(text)) return "Is Redis running there? Name another one with --redis or REDIS_URL.";
  if (/ENOTFOUND|EAI_AGAIN/.test(text)) return "The host name is not known here. Check --redis or REDIS_URL.";
  if (/NOAUTH|WRONGPASS/.test(text)) return "Put the user and password into the URL: redis://user:password@host:6379.";
  if (/timed? ?out|ETIMEDOUT/i.test(text)) return "The host does not answer: a firewall, or a server that hangs.";
  return "Check --redis or REDIS_URL.";
}
