/** A simulated redis-server: a process with a `run_id`, its data, its clock and its faults. */
import type { NodeScript } from "@x/redlock-core";
import { ReplyError } from "../redis/reply.ts";
import { type ClientReply, evaluate } from "../redis/scripts.ts";
import { Store } from "../redis/store.ts";
import type { Drift } from "./drift.ts";
import { Freezes } from "./freezes.ts";
import type { World } from "./world.ts";

export interface Subscriber {
  readonly receive: (message: string) => void;
}

type Data = ReturnType<Store["snapshot"]>;

/** The longest lag of a replica that `failOverLosing` promotes. */
export const LONGEST_LAG_MS = 10_000;

export type Amnesia =
  /** The disk is empty. */
  | "empty"
  /** The disk contains the last snapshot. */
  | "rollback"
  /** The disk contains every write. */
  | "durable";

export interface ServerOptions {
  readonly name: string;
  readonly drift: Drift;
  readonly clockOffsetMs: number;
}

export class Server {
  readonly name: string;
  readonly world: World;
  readonly store: Store;
  readonly #options: ServerOptions;
  readonly #subscribers = new Map<string, Set<Subscriber>>();
  #runId: string;
  #clockStepMs = 0;
  #snapshot: Data;
  /**
   * The data before the first write of each moment, the oldest moment first. Undefined unless `rememberWrites` was
   * called.
   */
  #earlier: { readonly atMs: number; readonly data: Data }[] | undefined;
  /** When the process last ran. Only valid while the process is frozen or down. */
  #ranUntilMs = 0;
  #isUp = true;
  readonly #freezes: Freezes;
  readonly #scripts = new Set<string>();
  #crashListeners = new Set<() => void>();
  /** Counts processes. A connection ends together with the process that it was opened to. */
  incarnation = 0;
  /** Called after each executed script. */
  onExecuted: (server: Server, args: readonly string[], reply: ClientReply) => void = () => undefined;

  constructor(world: World, options: ServerOptions) {
    this.world = world;
    this.name = options.name;
    this.#options = options;
    this.#freezes = new Freezes(world);
    this.#runId = world.random.hex(40);
    this.store = new Store({
      nowUs: () => this.nowUs(),
      info: () => `redis_version:7.0.15\r\nrun_id:${this.#runId}\r\nrole:master\r\n`,
      publish: (channel, message) => this.#publish(channel, message),
    });
    this.#snapshot = this.store.snapshot();
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  get isFrozen(): boolean {
    return this.#freezes.isFrozen;
  }

  nowUs(): number {
    const { drift, clockOffsetMs } = this.#options;
    const { nowMs } = this.world;
    return Math.floor((this.world.epochMs + clockOffsetMs + this.#clockStepMs + nowMs + drift.errorMs(nowMs)) * 1_000);
  }

  /** Runs `request` now, or once the process runs again. */
  receive(request: () => void): void {
    if (this.#isUp) this.#freezes.receive(request);
  }

  load(script: NodeScript): void {
    this.#scripts.add(script.sha1);
  }

  /** Runs a script like EVALSHA. @throws ReplyError */
  execute(script: NodeScript, keys: readonly string[], args: readonly string[]): ClientReply {
    if (!this.#scripts.has(script.sha1)) throw new ReplyError("NOSCRIPT No matching script. Please use EVAL.");
    this.#remember();
    const reply = evaluate(this.store, script.source, keys, args);
    this.onExecuted(this, args, reply);
    return reply;
  }

  subscribe(channel: string, subscriber: Subscriber): () => void {
    const subscribers = this.#subscribers.get(channel) ?? new Set();
    this.#subscribers.set(channel, subscribers);
    subscribers.add(subscriber);
    return () => subscribers.delete(subscriber);
  }

  onCrash(listener: () => void): () => void {
    this.#crashListeners.add(listener);
    return () => this.#crashListeners.delete(listener);
  }

  /** Leaves the state of a node that clients have used for an hour, so that the node is not in quarantine. */
  beSettled(): void {
    this.store.call("HSET", ["{x}:node", "run_id", this.#runId, "since", String(this.nowUs() - 3_600_000_000)]);
    this.takeSnapshot();
  }

  takeSnapshot(): void {
    if (this.#isUp) this.#snapshot = this.store.snapshot();
  }

  /** Keeps a copy of the data for each moment with a write, from now on, as `failOverLosing` needs. */
  rememberWrites(): void {
    this.#earlier ??= [];
  }

  freeze(ms: number): void {
    if (this.#isUp && !this.isFrozen) this.#ranUntilMs = this.world.nowMs;
    this.#freezes.freeze(ms, () => this.#isUp);
  }

  /** Ends all freezes, because the frozen process is gone. */
  thaw(): void {
    this.#freezes.thaw();
  }

  /**
   * Ends the process. A new process starts after `downMs` with the data that `amnesia` leaves and its clock stepped by
   * `stepMs`.
   */
  crash(options: { readonly amnesia: Amnesia; readonly downMs: number; readonly stepMs: number }): void {
    if (!this.#isUp) return;
    this.stop();
    this.world.at(this.world.nowMs + options.downMs, () => {
      this.stepClock(options.stepMs);
      this.start(options.amnesia);
    });
  }

  stop(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    if (!this.isFrozen) this.#ranUntilMs = this.world.nowMs;
    this.#freezes.dropRequests();
    this.#subscribers.clear();
    for (const listener of [...this.#crashListeners]) listener();
  }

  /** Starts a new process with the data that `amnesia` leaves. */
  start(amnesia: Amnesia): void {
    if (this.#isUp) return;
    this.#begin(amnesia === "empty" ? new Map() : amnesia === "durable" ? this.store.snapshot() : this.#snapshot);
  }

  stepClock(byMs: number): void {
    this.#clockStepMs += byMs;
  }

  /** Promotes a replica under the same address. The replica has the data of the last snapshot. */
  failOver(): void {
    if (!this.#isUp) return;
    this.#subscribers.clear();
    this.#freezes.dropRequests();
    for (const listener of [...this.#crashListeners]) listener();
    this.#begin(this.#snapshot);
  }

  /**
   * Promotes a replica under the same address, even if the process is frozen or down. The replica lacks the writes of
   * the last `lostMs` in which the process ran.
   */
  failOverLosing(lostMs: number): void {
    this.stop();
    const sinceMs = this.#ranUntilMs - lostMs;
    const lost = this.#earlier?.find(({ atMs }) => atMs > sinceMs);
    this.thaw();
    this.#begin(lost?.data ?? this.store.snapshot());
  }

  flush(): void {
    if (!this.#isUp) return;
    this.#remember();
    this.store.flush();
  }

  flushScripts(): void {
    this.#scripts.clear();
  }

  #remember(): void {
    const { nowMs } = this.world;
    if (this.#earlier === undefined || this.#earlier.at(-1)?.atMs === nowMs) return;
    while ((this.#earlier[0]?.atMs ?? nowMs) <= nowMs - LONGEST_LAG_MS) this.#earlier.shift();
    this.#earlier.push({ atMs: nowMs, data: this.store.snapshot() });
  }

  #begin(data: Data): void {
    this.store.restore(data);
    if (this.#earlier !== undefined) this.#earlier = [];
    this.#scripts.clear();
    this.#runId = this.world.random.hex(40);
    this.incarnation += 1;
    this.#isUp = true;
    this.takeSnapshot();
  }

  #publish(channel: string, message: string): number {
    const subscribers = [...(this.#subscribers.get(channel) ?? [])];
    for (const subscriber of subscribers) subscriber.receive(message);
    return subscribers.length;
  }
}
