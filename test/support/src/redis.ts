/**
 * Real Redis servers for tests and examples: each is a process on a unix socket and a free loopback port, in a
 * temporary folder. A server ends with `stop()`, at the latest with the process that started it, even if that process
 * is killed (see watchdog.ts).
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { type ReservedPort, reservePort } from "./ports.ts";
import { type Exit, follow } from "./processes.ts";
import { redisBinary } from "./redis-binary.ts";
import { temporaryFolder, unref } from "./watchdog.ts";

export interface RedisServerOptions {
  /** Additional arguments for the server, after the defaults: `["--maxmemory", "10mb"]`. */
  readonly args?: readonly string[];
  /**
   * Whether the server keeps its data over `kill()` and `restart()`, in an append-only file that is synced on every
   * write. Default: false.
   */
  readonly persistence?: boolean;
  /** Whether to start a sentinel instead of a server with data. Default: false. */
  readonly sentinel?: boolean;
}

const startAttempts = 20;
const startTimeoutMs = 20_000;
const portRetryMs = 100;

let serverCount = 0;

/**
 * Starts a server and resolves when it accepts connections.
 *
 * @throws Error with the server's last lines if the server does not start, or if no binary is on the PATH.
 */
export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  const folder = join(temporaryFolder(), `${serverCount++}`);
  for (let attempt = 1; ; attempt++) {
    mkdirSync(folder);
    const server = new RedisServer(folder, await reservePort(), options);
    try {
      await server.start();
      return server;
    } catch (error) {
      await server.stop();
      if (!(error instanceof PortTakenError) || attempt === startAttempts) throw error;
    }
  }
}

/** Starts `count` independent servers together. If one server fails, the others are stopped. */
export async function startRedisNodes(count: number, options: RedisServerOptions = {}): Promise<RedisServer[]> {
  const results = await Promise.allSettled(Array.from({ length: count }, () => startRedis(options)));
  const servers = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const failure = results.find((result) => result.status === "rejected");
  if (failure !== undefined) {
    await Promise.all(servers.map((server) => server.stop()));
    throw failure.reason;
  }
  return servers;
}

class PortTakenError extends Error {}

export class RedisServer implements AsyncDisposable {
  readonly host = "127.0.0.1";
  readonly port: number;
  /** The unix socket. */
  readonly path: string;
  readonly url: string;
  readonly #folder: string;
  readonly #args: readonly string[];
  #reserved: ReservedPort | undefined;
  #child: ChildProcess | undefined;
  #exited: Promise<Exit> | undefined;
  #log: string[] = [];
  #kept: Redis | undefined;

  /** Use `startRedis`. */
  constructor(folder: string, reserved: ReservedPort, options: RedisServerOptions) {
    const { port } = reserved;
    this.#reserved = reserved;
    this.port = port;
    this.path = join(folder, "sock");
    this.url = `redis://${this.host}:${port}`;
    this.#folder = folder;
    const configFile = join(folder, "sentinel.conf");
    if (options.sentinel === true) writeFileSync(configFile, "");
    this.#args = [
      ...(options.sentinel === true ? [configFile, "--sentinel"] : []),
      ...["--bind", this.host, "--port", `${port}`, "--unixsocket", this.path, "--dir", folder],
      ...(options.sentinel === true
        ? []
        : ["--save", "", "--appendonly", options.persistence === true ? "yes" : "no", "--appendfsync", "always"]),
      ...["--daemonize", "no", "--set-proc-title", "no", "--logfile", "", "--loglevel", "notice"],
      ...(options.args ?? []),
    ];
  }

  /** The process ID. Undefined while the server is down. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get isRunning(): boolean {
    return this.#child !== undefined;
  }

  /** The last lines of the server's log. */
  get log(): readonly string[] {
    return this.#log;
  }

  /** Starts the server after `kill()`, and resolves when it accepts connections. Does nothing while the server runs. */
  async start(): Promise<void> {
    if (this.#child !== undefined) return;
    this.#log = [];
    const child = spawn(redisBinary(), this.#args, { detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const exited = follow(child, `redis-server :${this.port}`);
    const closed = once(child, "close").catch(() => undefined);
    this.#child = child;
    this.#exited = exited;
    const deadline = new AbortController();
    const late = delay(startTimeoutMs, "late" as const, { signal: deadline.signal }).catch(() => "late" as const);
    const end = await Promise.race([this.#readLog(child), exited, late]);
    deadline.abort();
    if (end === "ready") {
      // A running server does not keep the process alive.
      for (const each of [child, child.stdout, child.stderr]) unref(each);
      void exited.then(() => {
        if (this.#child === child) this.#child = undefined;
      });
      return;
    }
    await this.kill();
    // The last lines may arrive after the end of the process.
    await closed;
    const log = this.#log.join("\n");
    if (/address already in use|Failed listening|Could not create server/i.test(log))
      throw new PortTakenError(`port ${this.port} is taken\n${log}`);
    throw new Error(
      `redis-server did not start: ${end === "late" ? `silent for ${startTimeoutMs} ms` : JSON.stringify(end)}\n${log}`,
    );
  }

  /**
   * Sends a signal, SIGKILL by default, and resolves when the process has ended. The folder remains, for `restart()`.
   */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    child.ref();
    this.#kept?.disconnect();
    child.kill(signal);
    await this.#exited;
    if (this.#child === child) this.#child = undefined;
  }

  /** Kills the server and starts it on the same port. Without `persistence` all data is lost. */
  async restart(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    await this.kill(signal);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.start();
      } catch (error) {
        if (!(error instanceof PortTakenError) || attempt === startAttempts) throw error;
        await delay(portRetryMs);
      }
    }
  }

  /** Sends SIGSTOP: connections stay open, and requests are not answered. */
  freeze(): void {
    this.#child?.kill("SIGSTOP");
  }

  /** SIGCONT. */
  thaw(): void {
    this.#child?.kill("SIGCONT");
  }

  /** FLUSHALL. */
  async flush(): Promise<void> {
    await this.call("FLUSHALL");
  }

  /** Returns how often the server has run the command since it started. */
  async calls(command: string): Promise<number> {
    const stats = String(await this.call("INFO", "commandstats"));
    return Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, "m").exec(stats)?.[1] ?? 0);
  }

  /** Runs one command on a connection that no other command uses in the meantime. */
  async call(command: string, ...args: (string | number)[]): Promise<unknown> {
    const client = await this.#connection();
    try {
      return await client.call(command, ...args);
    } finally {
      this.#keep(client);
    }
  }

  /** The connection of the last command, or a new one, because connecting costs twenty times as much as a command. */
  async #connection(): Promise<Redis> {
    const kept = this.#kept;
    this.#kept = undefined;
    if (kept?.status === "ready") {
      kept.stream.ref();
      return kept;
    }
    const client = new Redis({
      path: this.path,
      lazyConnect: true,
      retryStrategy: () => null,
      enableReadyCheck: false,
    });
    // The command rejects with the error. Without a listener, ioredis would also log it.
    client.on("error", () => {});
    try {
      await client.connect();
      return client;
    } catch (error) {
      client.disconnect();
      throw error;
    }
  }

  #keep(client: Redis): void {
    if (this.#kept !== undefined || client.status !== "ready") {
      client.disconnect();
      return;
    }
    this.#kept = client;
    // Like the server, the connection does not keep the process alive.
    client.stream.unref();
  }

  /** Ends the server immediately, removes its folder and releases its port. */
  async stop(): Promise<void> {
    await this.kill();
    this.#reserved?.[Symbol.dispose]();
    this.#reserved = undefined;
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #readLog(child: ChildProcess): Promise<"ready"> {
    return new Promise((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        if (stream === null) continue;
        createInterface({ input: stream }).on("line", (line) => {
          this.#log.push(line);
          if (this.#log.length > 50) this.#log.shift();
          if (/Ready to accept connections|Sentinel ID is/.test(line)) resolve("ready");
        });
      }
    });
  }
}
