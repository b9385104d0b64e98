/**
 * A clock that stands still unless a test advances it. `advance` runs all due events in order, each event together with
 * its promise continuations. So a test of an hour takes milliseconds and always ends the same way.
 *
 * The clock drives locks, elections, schedulers, memory nodes and `sleep`. Real timers and real I/O of the code under
 * test are neither moved nor awaited.
 */
import { setImmediate } from "node:timers";
import { integer, objectWith, Schema, type ShapeOf, text } from "@x/redlock-core/kit";
import { LockCheck, LockViolationError } from "./lock-check.ts";
import { DURATION, VirtualProcess } from "./process.ts";
import { Drift } from "./world/drift.ts";
import { Machine } from "./world/machine.ts";
import { CalmRandom } from "./world/random.ts";
import { EPOCH_MS, World } from "./world/world.ts";

export interface VirtualClockOptions {
  /**
   * The time that wall clocks show at the start, in ms since the Unix epoch, from 1e12 (2001) on. Default:
   * 2025-11-11T22:26:40Z.
   */
  readonly startAt?: number | undefined;
}

export interface UntilOptions {
  /** The longest virtual time to pass, in ms. Default 60000. */
  readonly within?: number | undefined;
}

/** Fencing tokens contain the time. From this time on the time keeps its number of digits. */
const EARLIEST_MS = 1e12;

const OPTIONS = new Schema({
  startAt: integer({ min: EARLIEST_MS }).default(EPOCH_MS),
} satisfies ShapeOf<VirtualClockOptions>);
const UNTIL = new Schema({ within: DURATION.default(60_000) } satisfies ShapeOf<UntilOptions>);
const NAME = text({ min: 1 });
const PROMISE = objectWith<PromiseLike<unknown>>(["then"]);

/** A drift of 0: clocks without an error. */
export const RIGHT: Drift = new Drift(0, Number.POSITIVE_INFINITY, 0);

export class VirtualClock extends VirtualProcess {
  readonly #world: World;
  readonly #checks = new Set<LockCheck>();
  #last: Promise<void> = Promise.resolve();
  #isPumping = false;
  #failure: unknown;

  constructor(options: VirtualClockOptions = {}) {
    const { startAt } = OPTIONS.resolve(options);
    const world = new World("", { record: false, random: new CalmRandom(), epochMs: startAt });
    super(machineOn(world, "main"));
    this.#world = world;
    world.onDue = () => this.#pumpSoon();
  }

  /** Milliseconds that have passed since the start. */
  get elapsedMs(): number {
    return this.#world.nowMs;
  }

  /**
   * Advances the time by `ms`, and runs all events that are due. Rejects with `LockViolationError` if a check fails.
   */
  async advance(ms: number): Promise<void> {
    DURATION.of("ms", ms);
    await this.#inTurn(() => this.#run(ms));
  }

  /**
   * Advances the time until `promise` settles, and settles with the same outcome. Rejects if `promise` is still pending
   * after `within` ms, or with `LockViolationError` if a check fails.
   */
  async until<Result>(promise: PromiseLike<Result>, options: UntilOptions = {}): Promise<Result> {
    const { within } = UNTIL.resolve(options);
    PROMISE.of("promise", promise);
    let isSettled = false;
    const settle = (): void => {
      isSettled = true;
    };
    promise.then(settle, settle);
    await this.#inTurn(() => this.#run(within, () => isSettled));
    if (!isSettled) throw new Error(`the promise did not settle within ${within} ms of virtual time`);
    return await promise;
  }

  /** Returns another process with its own clocks in the same virtual time. */
  process(name: string): VirtualProcess {
    return new VirtualProcess(machineOn(this.#world, NAME.of("name", name)));
  }

  /** Checks all locks that are acquired on this clock from now on, after every turn of the event loop. */
  checkLocks(): LockCheck {
    const check = new LockCheck(this.#world, () => this.#checks.delete(check));
    this.#checks.add(check);
    return check;
  }

  /**
   * Runs due events after the test's current turn of the event loop. So a request to a node takes no time and needs no
   * `advance`.
   */
  #pumpSoon(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    setImmediate(() => {
      this.#isPumping = false;
      this.#inTurn(() => this.#run(0)).catch((error: unknown) => {
        // Not awaited by the test: the next `advance` throws the error.
        this.#failure ??= error;
      });
    });
  }

  #inTurn(run: () => Promise<void>): Promise<void> {
    const done = this.#last.then(run);
    this.#last = done.catch(() => undefined);
    return done;
  }

  async #run(ms: number, isOver: () => boolean = () => false): Promise<void> {
    const world = this.#world;
    world.noteClientCode();
    await world.run(world.nowMs + ms, () => {
      for (const check of this.#checks) check.look();
      if (isOver()) world.stop();
    });
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) throw failure;
    if (world.violation !== undefined) throw new LockViolationError(world.violation);
  }
}

function machineOn(world: World, name: string): Machine {
  return new Machine(world, { name, drift: RIGHT, wallOffsetMs: 0, stallChance: 0, longestStallMs: 0 });
}
