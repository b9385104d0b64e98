/** A run: real servers and processes of one system under the faults of a seed. */
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Child, machineMs, spawnChild, startRedis, until } from "@x/test-support";
import { check, type Figures } from "./checker.ts";
import { EventFile, FAULT_KINDS, type FaultKind, readEvents, type TortureEvent } from "./events.ts";
import { type Fault, planFaults, strikesServer } from "./faults.ts";
import { type Order, type ProcessArguments, READY } from "./processes/arguments.ts";
import { type Struck, StruckPostgres, StruckRedis } from "./servers.ts";
import { Store } from "./store.ts";
import { loadSystem } from "./systems/index.ts";
import type { Address, LockSystem, Producer, QueueSystem, SystemName } from "./systems/system.ts";

export interface TortureOptions {
  readonly system: SystemName;
  readonly seed: string;
  /** How long faults strike. */
  readonly faultyMs: number;
  /** Which faults strike. Default: all of which the system's servers are capable. */
  readonly kinds?: readonly FaultKind[] | undefined;
  /** Default: 3 s for a lock, 10 s for a job. */
  readonly leaseMs?: number;
  readonly onProgress?: (text: string) => void;
}

export interface Run {
  readonly system: SystemName;
  readonly seed: string;
  readonly faultyMs: number;
  /** The faults that were asked for; undefined for all. */
  readonly kinds: readonly FaultKind[] | undefined;
  readonly leaseMs: number;
  readonly figures: Figures;
  readonly events: readonly TortureEvent[];
}

const START_TIMEOUT_MS = 60_000;
const PROCESSES = 4;
const LOCK_NODES = 3;
const LOCK_KEYS = 3;
const QUEUE_KEYS = 6;
const LOCK_LEASE_MS = 3_000;
const JOB_LEASE_MS = 10_000;
/** Jobs that wait; above this the producer waits. */
const MAX_BACKLOG = 30;
/** How long after the last fault a key may take to move on, in leases, and at least in ms. */
const RECOVERY_LEASES = 9;
const LEAST_RECOVERY_MS = 30_000;
/** A key stands still if no process works on the key for longer than this. */
const STANDSTILL_LEASES = 2;
const LEAST_STANDSTILL_MS = 5_000;

export async function runTorture(options: TortureOptions): Promise<Run> {
  const system = await loadSystem[options.system]();
  await using run = new TortureRun(options, system);
  return await run.run();
}

class TortureRun implements AsyncDisposable {
  readonly #options: TortureOptions;
  readonly #system: LockSystem | QueueSystem;
  readonly #leaseMs: number;
  readonly #kinds: readonly FaultKind[];
  readonly #keys: readonly string[];
  readonly #folder = mkdtempSync(join(tmpdir(), "x-torture-"));
  readonly #eventFile = join(this.#folder, "events");
  readonly #events = new EventFile(this.#eventFile);
  readonly #cleanUp: (() => Promise<unknown>)[] = [];
  readonly #servers: Struck[] = [];
  readonly #children: Child[] = [];
  #storePath = "";
  /** Ends when the faults do. */
  #producing: Promise<void> = Promise.resolve();
  #isOver = false;
  #added = 0;

  constructor(options: TortureOptions, system: LockSystem | QueueSystem) {
    this.#options = options;
    this.#system = system;
    const isQueue = system.kind === "queue";
    this.#leaseMs = options.leaseMs ?? (isQueue ? JOB_LEASE_MS : LOCK_LEASE_MS);
    this.#kinds = (options.kinds ?? FAULT_KINDS).filter((kind) => system.without?.includes(kind) !== true);
    this.#keys = Array.from({ length: isQueue ? QUEUE_KEYS : LOCK_KEYS }, (_, index) => `key-${index + 1}`);
  }

  async run(): Promise<Run> {
    const { system, seed, faultyMs, kinds } = this.#options;
    const store = await this.#startServers();
    await this.#startProcesses(store);
    await this.#strike();
    this.#isOver = true;
    await this.#producing;
    await this.#calmDown(store);
    const endMs = machineMs();
    for (const child of this.#children) await child.kill();
    const events = [...readEvents(this.#eventFile), ...(await store.writes())];
    const leaseMs = this.#leaseMs;
    const standstillMs = Math.max(LEAST_STANDSTILL_MS, STANDSTILL_LEASES * leaseMs);
    const figures = check(events, { endMs, leaseMs, standstillMs });
    return { system, seed, faultyMs, kinds, leaseMs, figures, events };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await Promise.allSettled(this.#children.map((child) => child.kill()));
    for (const end of this.#cleanUp.toReversed()) await end().catch(() => undefined);
    this.#events[Symbol.dispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #startServers(): Promise<Store> {
    const own = await startRedis();
    this.#cleanUp.push(() => own.stop());
    this.#storePath = own.path;
    const count = this.#system.kind === "locks" ? LOCK_NODES : 1;
    for (let index = 0; index < count; index += 1) {
      const isPostgres = this.#system.kind === "queue" && this.#system.server === "postgres";
      const server = isPostgres ? await StruckPostgres.start() : await StruckRedis.start(this.#system.kind === "queue");
      this.#servers.push(server);
      this.#cleanUp.push(() => server[Symbol.asyncDispose]());
    }
    const store = new Store(own.path);
    this.#cleanUp.push(async () => store[Symbol.dispose]());
    return store;
  }

  async #startProcesses(store: Store): Promise<void> {
    const addresses = await Promise.all(Array.from({ length: PROCESSES }, () => this.#addClient()));
    const producer = await this.#openProducer();
    for (const [index, servers] of addresses.entries()) this.#children.push(this.#spawn(index, servers));
    this.#respawn = (index) => this.#spawn(index, addresses[index] ?? []);
    const isReady = (message: unknown): message is typeof READY => message === READY;
    await Promise.all(this.#children.map((child) => child.message(isReady, { timeout: START_TIMEOUT_MS })));
    if (producer !== undefined) this.#producing = this.#produce(producer, store);
  }

  /** Creates the queue, and returns its producer. Undefined for locks. */
  async #openProducer(): Promise<Producer | undefined> {
    if (this.#system.kind !== "queue") return undefined;
    const [server] = await this.#addClient();
    if (server === undefined) throw new TypeError("a queue needs a server");
    const producer = await this.#system.openProducer(server, this.#leaseMs);
    this.#cleanUp.push(async () => {
      const late = new AbortController();
      const signal = late.signal;
      await Promise.race([producer.close(), delay(5_000, undefined, { signal })]).finally(() => late.abort());
    });
    return producer;
  }

  #respawn: (index: number) => Child = () => {
    throw new Error("no process has been started");
  };

  async #addClient(): Promise<Address[]> {
    const proxies = await Promise.all(this.#servers.map((server) => server.addClient()));
    return proxies.map(({ host, port }) => ({ host, port }));
  }

  #spawn(index: number, servers: readonly Address[]): Child {
    const name = `process ${index + 1}`;
    const { system } = this.#options;
    const [leaseMs, keys, storePath, eventFile] = [this.#leaseMs, this.#keys, this.#storePath, this.#eventFile];
    const args: ProcessArguments = { system, name, servers, leaseMs, keys, storePath, eventFile };
    return spawnChild(new URL("./processes/struck.ts", import.meta.url), { name, args: [JSON.stringify(args)] });
  }

  async #produce(producer: Producer, store: Store): Promise<void> {
    for (let job = 0; !this.#isOver; job += 1) {
      for (const key of this.#keys) {
        const id = randomUUID();
        if (!(await this.#add(() => producer.add({ key, job }, id)))) return;
        this.#events.append({ kind: "added", key, job, atMs: machineMs() });
        this.#added += 1;
      }
      while (!this.#isOver && this.#added - (await store.doneJobs()) > MAX_BACKLOG) await delay(50);
    }
  }

  /**
   * Repeats an add until the queue confirms the job, or until the faults are over. Returns whether the job is confirmed.
   * The ID of the job keeps a lost answer from making two jobs.
   */
  async #add(add: () => Promise<void>): Promise<boolean> {
    while (!this.#isOver) {
      try {
        await add();
        return true;
      } catch {
        await delay(100);
      }
    }
    return false;
  }

  async #strike(): Promise<void> {
    const plan = planFaults({
      seed: this.#options.seed,
      kinds: this.#kinds,
      faultyMs: this.#options.faultyMs,
      leaseMs: this.#leaseMs,
      processes: PROCESSES,
      servers: this.#servers.length,
    });
    const startMs = machineMs();
    await Promise.all(
      plan.map(async (fault, id) => {
        await delay(startMs + fault.atMs - machineMs());
        const leftMs = startMs + this.#options.faultyMs - machineMs();
        this.#options.onProgress?.(`${this.#options.system}: ${Math.round(leftMs / 1_000)} s left, ${fault.kind}`);
        await (strikesServer(fault.kind)
          ? this.#afterServerFaults(() => this.#fault(fault, id))
          : this.#fault(fault, id));
        this.#events.append({ kind: "mended", id, atMs: machineMs() });
      }),
    );
  }

  /** Strikes after all earlier server faults: a server may need more time to come back than the plan foresaw. */
  async #afterServerFaults(strike: () => Promise<void>): Promise<void> {
    this.#serverFaults = this.#serverFaults.then(strike);
    await this.#serverFaults;
  }

  #serverFaults: Promise<void> = Promise.resolve();

  async #fault({ kind, forMs, target, choice }: Fault, id: number): Promise<void> {
    const child = this.#children[target] as Child;
    const server = this.#servers[target % this.#servers.length] as Struck;
    const tell = (who: string | undefined, text: string): void =>
      this.#events.append({ kind: "fault", id, fault: kind, who, text, atMs: machineMs() });
    const order = (what: Order): void => child.send({ ...what });
    const proxy = this.#servers[choice % this.#servers.length]?.clients[target];
    const ms = `${Math.round(forMs)} ms`;
    switch (kind) {
      case "process killed":
        tell(child.name, child.name);
        await child.kill();
        await delay(0.1 * forMs);
        this.#children[target] = this.#respawn(target);
        return;
      case "process frozen":
        tell(child.name, `${child.name} for ${ms}`);
        child.freeze();
        await delay(forMs);
        child.thaw();
        return;
      case "event loop blocked":
        tell(child.name, `${child.name} for ${ms}`);
        order({ blockMs: forMs });
        await delay(forMs);
        return;
      case "clock stepped": {
        const clockOffMs = Math.round(choice % 2 === 0 ? forMs : -forMs);
        tell(child.name, `${child.name} by ${clockOffMs} ms, for ${ms}`);
        order({ clockOffMs });
        await delay(forMs);
        order({ clockOffMs: 0 });
        return;
      }
      case "connection lost":
        tell(child.name, `all of ${child.name}`);
        for (const { clients } of this.#servers) clients[target]?.drop();
        return;
      case "connection silent":
        tell(child.name, `${child.name} to server ${(choice % this.#servers.length) + 1} for ${ms}`);
        for (const direction of ([["up"], ["down"], ["up", "down"]] as const)[choice % 3] ?? [])
          proxy?.blackhole(direction);
        await delay(forMs);
        proxy?.heal();
        proxy?.drop();
        return;
      case "server frozen":
        tell(undefined, `server ${target + 1} for ${ms}`);
        server.freeze();
        await delay(forMs);
        server.thaw();
        return;
      case "server restarted":
        tell(undefined, `server ${target + 1}`);
        await server.restart(0.2 * forMs);
        return;
      case "replica promoted":
        tell(undefined, `server ${target + 1}`);
        await server.promote(0.2 * forMs);
        return;
    }
  }

  /** Waits until all jobs are done, or until every lock has been held again, for a limited time. */
  async #calmDown(store: Store): Promise<void> {
    const limitMs = Math.max(LEAST_RECOVERY_MS, RECOVERY_LEASES * this.#leaseMs);
    this.#options.onProgress?.(
      `${this.#options.system}: no more faults, at most ${Math.round(limitMs / 1_000)} s left`,
    );
    const before = await store.counts(this.#keys);
    const hasRecovered = async (): Promise<boolean> => {
      if (this.#system.kind === "queue") return (await store.doneJobs()) >= this.#added;
      return (await store.counts(this.#keys)).every((count, index) => count > (before[index] ?? 0));
    };
    await until(hasRecovered, limitMs).catch(() => undefined);
  }
}
