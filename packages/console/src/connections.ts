/**
 * Connections to the nodes of a command. The command first tries each node, so that an error names the node and the
 * reason.
 */
import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { connectOptionsOf } from "@x/redlock-core/protocol";
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from "ioredis";
import { ConsoleFailure } from "./failure.ts";

const CONNECT_MS = 3_000;

export interface ConnectionOptions {
  /** URLs of the nodes, in the same order as in the services. */
  readonly urls: readonly string[];
  /** The option or variable with the URLs. Undefined for the default URL. */
  readonly source: "--redis" | "REDIS_URL" | undefined;
  /** Whether the URLs are members of one Redis Cluster, which then counts as one node. */
  readonly cluster: boolean;
  readonly keyPrefix?: string;
  readonly maxTtl?: number;
  readonly quarantine: boolean;
}

export class Connections implements AsyncDisposable {
  readonly options: ConnectionOptions;
  readonly #closing: (() => Promise<unknown>)[] = [];

  /** @throws ConsoleFailure if a URL does not name a node */
  constructor(options: ConnectionOptions) {
    this.options = options;
    this.#checkUrls();
  }

  /** Opens the lock nodes. Throws `ConsoleFailure` if none of the nodes answers. */
  async redlock(): Promise<Redlock> {
    const { urls, cluster, keyPrefix, maxTtl, quarantine } = this.options;
    const options: RedlockOptions = {
      ...(quarantine ? {} : { quarantine }),
      ...(keyPrefix === undefined ? {} : { keyPrefix }),
      ...(maxTtl === undefined ? {} : { maxTtl, ttl: Math.min(maxTtl, 30_000) }),
    };
    const open = (nodes: readonly (string | Cluster)[]): Redlock => {
      const redlock = new Redlock(nodes, options);
      this.#closing.push(() => redlock.close());
      return redlock;
    };
    const redlock = cluster ? undefined : open(urls);
    const tries = await Promise.allSettled(urls.map((url) => this.#try(url)));
    const failed = tries.find((result) => result.status === "rejected");
    if (failed !== undefined && tries.every((result) => result.status === "rejected")) throw failed.reason;
    return redlock ?? open([await this.#cluster()]);
  }

  /** Opens the queue's Redis: the first node, or the Cluster. Throws `ConsoleFailure` if the server does not answer. */
  async queueRedis(): Promise<Redis | Cluster> {
    const { urls, cluster } = this.options;
    const [url = ""] = urls;
    await this.#try(url);
    return cluster ? await this.#cluster() : this.#open(url);
  }

  /**
   * Opens the servers of a queue in partitions: the first `count` nodes, or the Cluster. Throws `ConsoleFailure` if a
   * server does not answer, or if fewer URLs are given.
   */
  async queueServers(count: number): Promise<readonly (Redis | Cluster)[]> {
    const { urls, cluster } = this.options;
    if (count === 1 || cluster) return [await this.queueRedis()];
    if (urls.length < count) {
      throw new ConsoleFailure(
        `the queue is on ${count} servers, but ${urls.length} ${urls.length === 1 ? "is" : "are"} given`,
        "Pass all servers with --redis, in the same order as in the services.",
      );
    }
    const servers = urls.slice(0, count);
    await Promise.all(servers.map((url) => this.#try(url)));
    return servers.map((url) => this.#open(url));
  }

  /**
   * Throws `ConsoleFailure` if a URL does not name a node. Every URL is checked before the first connection: a comma in
   * a password makes two URLs, and the first may look like a host.
   */
  #checkUrls(): void {
    const { urls, source, cluster } = this.options;
    try {
      const sockets = urls.map(connectOptionsOf).filter(({ path }) => path !== undefined);
      if (!cluster || sockets.length === 0) return;
    } catch (error) {
      throw new ConsoleFailure(`${source ?? "the default"}: ${(error as Error).message}`);
    }
    throw new ConsoleFailure("--cluster needs the URLs of members", "For example redis://redis-1:6379.");
  }

  /** Connects once. Throws `ConsoleFailure` if the node does not answer. */
  async #try(url: string): Promise<void> {
    const client = clientOf(url, {
      lazyConnect: true,
      connectTimeout: CONNECT_MS,
      commandTimeout: CONNECT_MS,
      retryStrategy: null,
      maxRetriesPerRequest: 0,
    });
    // The rejection only says "Connection is closed."; the event contains the reason.
    let reason: Error | undefined;
    client.on("error", (error: Error) => {
      reason = error;
    });
    try {
      await client.connect();
      await client.ping();
    } catch (error) {
      const { message } = reason ?? (error as Error);
      throw new ConsoleFailure(`cannot reach ${nameOf(url)}: ${message}`, adviceOf(message, this.options.source));
    } finally {
      client.disconnect();
    }
  }

  #open(url: string): Redis {
    const client = clientOf(url, { maxRetriesPerRequest: null });
    client.on("error", () => undefined);
    this.#closing.push(async () => client.disconnect());
    return client;
  }

  /** Opens the Cluster of the given members. Throws `ConsoleFailure` if the Cluster cannot be reached. */
  async #cluster(): Promise<Cluster> {
    const { urls } = this.options;
    const client = openCluster(urls, { lazyConnect: true, clusterRetryStrategy: reconnectDelayMs });
    this.#closing.push(async () => client.disconnect());
    // A client that does not retry reports the reason. The other client retries forever.
    const trial = openCluster(urls, { lazyConnect: true, clusterRetryStrategy: null });
    try {
      await trial.connect();
    } catch (error) {
      const reason = (error as { readonly lastNodeError?: Error }).lastNodeError ?? (error as Error);
      throw new ConsoleFailure(
        `no Redis Cluster at ${nameOf(urls[0] ?? "")}: ${reason.message}`,
        "Is --cluster right?",
      );
    } finally {
      trial.disconnect();
    }
    await client.connect();
    return client;
  }

  /** Calls `close` when the command ends, before the resources that were opened earlier are closed. */
  defer(close: () => Promise<unknown>): void {
    this.#closing.push(close);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closing.reverse()) await close();
  }
}

/** Opens a Cluster. All members use the user, password and TLS of the first URL. */
function openCluster(urls: readonly string[], options: ClusterOptions): Cluster {
  const addresses = urls.map(connectOptionsOf);
  const [{ username, password, tls } = {}] = addresses;
  const user: Pick<ReturnType<typeof connectOptionsOf>, "username" | "password" | "tls"> = { username, password, tls };
  const client = new Cluster(
    addresses.map(({ host = "localhost", port = 6379 }) => ({ host, port })),
    { ...options, redisOptions: { maxRetriesPerRequest: null, ...user } },
  );
  client.on("error", () => undefined);
  return client;
}

function reconnectDelayMs(times: number): number {
  return Math.min(100 * times, 2_000);
}

function clientOf(url: string, options: RedisOptions): Redis {
  return new Redis({ ...connectOptionsOf(url), ...options } as object);
}

/** Returns the host and port of a node's URL, or the path of its socket. */
function nameOf(url: string): string {
  const { host = "localhost", port = 6379, path } = connectOptionsOf(url);
  return path ?? `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function adviceOf(text: string, source: ConnectionOptions["source"]): string {
  const check = source ?? "--redis or REDIS_URL";
  if (/ECONNREFUSED/.test(text)) {
    return `Is Redis running there? ${source === undefined ? `Pass another address with ${check}.` : `The address comes from ${check}.`}`;
  }
  if (/ENOTFOUND|EAI_AGAIN/.test(text)) return `The host name cannot be resolved. Check ${check}.`;
  if (/NOAUTH|WRONGPASS/.test(text)) return "Put the user and password into the URL: redis://user:password@host:6379.";
  if (/timed? ?out|ETIMEDOUT/i.test(text)) return "The host does not answer: a firewall, or a server that hangs.";
  return `Check ${check}.`;
}
