/** A simulated redis-server: a process with a `run_id`, its data, its clock, and what can happen to it. */
import type { NodeScript } from "@x/redlock-core";
import { type ClientReply, evaluate } from "../redis/scripts.ts";
import { ReplyError, Store } from "../redis/store.ts";
import type { Drift } from "./drift.ts";
import type { World } from "./world.ts";

export interface Subscriber {
  readonly receive: (message: string) => void;
}

export type Amnesia =
  /** Nothing on disk. */
  | "empty"
  /** The last snapshot. */
  | "rollback"
  /** Every write was synced. */
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
  #snapshot: ReturnType<Store["snapshot"]>;
  #isUp = true;
  #frozenCount = 0;
  #waiting: (() => void)[] = [];
  readonly #scripts = new Set<string>();
  #crashListeners = new Set<() => void>();
  /** Counts processes: a connection ends with the process it was made to. */
  incarnation = 0;
  /** Called after each executed script. */
  onExecuted: (server: Server, args: readonly string[], reply: ClientReply) => void = () => undefined;

  constructor(world: World, options: ServerOptions) {
    this.world = world;
    this.name = options.name;
    this.#options = options;
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
    return this.#frozenCount > 0;
  }

  nowUs(): number {
    const { drift, clockOffsetMs } = this.#options;
    const { nowMs } = this.world;
    return Math.floor((this.world.epochMs + clockOffsetMs + this.#clockStepMs + nowMs + drift.errorMs(nowMs)) * 1_000);
  }

  /** Runs `request` now, or when the process runs again. */
  receive(request: () => void): void {
    if (!this.#isUp) return;
    if (this.#frozenCount > 0) this.#waiting.push(request);
    else request();
  }

  /** SCRIPT LOAD. */
  load(script: NodeScript): void {
    this.#scripts.add(script.sha1);
  }

  /** EVALSHA. @throws ReplyError */
  execute(script: NodeScript, keys: readonly string[], args: readonly string[]): ClientReply {
    if (!this.#scripts.has(script.sha1)) throw new ReplyError("NOSCRIPT No matching script. Please use EVAL.");
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

  /** As if clients had used it for an hour: it is in no quarantine. */
  beSettled(): void {
    this.store.call("HSET", ["{x}:node", "run_id", this.#runId, "since", String(this.nowUs() - 3_600_000_000)]);
    this.takeSnapshot();
  }

  takeSnapshot(): void {
    if (this.#isUp) this.#snapshot = this.store.snapshot();
  }

  freeze(ms: number): void {
    this.#frozenCount += 1;
    this.world.at(this.world.nowMs + ms, () => {
      this.#frozenCount -= 1;
      if (this.#frozenCount > 0 || !this.#isUp) return;
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const request of waiting) request();
    });
  }

  /** Ends the process; a new one starts after `downMs` with what `amnesia` left, its clock `stepMs` further. */
  crash(options: { readonly amnesia: Amnesia; readonly downMs: number; readonly stepMs: number }): void {
    if (!this.#isUp) return;
    this.stop();
    this.world.at(this.world.nowMs + options.downMs, () => {
      this.stepClock(options.stepMs);
      this.start(options.amnesia);
    });
  }

  /** Ends the process. */
  stop(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    this.#waiting = [];
    this.#subscribers.clear();
    for (const listener of [...this.#crashListeners]) listener();
  }

  /** Starts another process with what is left of the data. */
  start(amnesia: Amnesia): void {
    if (this.#isUp) return;
    this.#begin(amnesia === "empty" ? new Map() : amnesia === "durable" ? this.store.snapshot() : this.#snapshot);
  }

  stepClock(byMs: number): void {
    this.#clockStepMs += byMs;
  }

  /** A replica that lags behind takes over under the same address. */
  failOver(): void {
    if (!this.#isUp) return;
    this.#subscribers.clear();
    this.#waiting = [];
    for (const listener of [...this.#crashListeners]) listener();
    this.#begin(this.#snapshot);
  }

  flush(): void {
    if (this.#isUp) this.store.flush();
  }

  flushScripts(): void {
    this.#scripts.clear();
  }

  #begin(data: ReturnType<Store["snapshot"]>): void {
    this.store.restore(data);
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
