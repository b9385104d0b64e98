/**
 * Time that stands still unless a test advances it. Everything that is due meanwhile happens in its order, each event
 * with the promise continuations that it made due. So a test of an hour takes milliseconds and always ends the same
 * way.
 *
 * It moves what runs on it: locks, elections, schedulers, the nodes, and `sleep`. Real timers and real I/O of the code
 * under test it neither sees nor waits for.
 */
import { setImmediate } from "node:timers";
import { integer, objectWith, Schema, type ShapeOf, text } from "@x/redlock-core/protocol";
import { LockCheck, LockViolationError } from "./lock-check.ts";
import { DURATION, VirtualProcess } from "./process.ts";
import { Drift } from "./world/drift.ts";
import { Machine } from "./world/machine.ts";
import { CalmRandom } from "./world/random.ts";
import { EPOCH_MS, World } from "./world/world.ts";

export interface VirtualClockOptions {
  /** What wall clocks show at first, in ms since the Unix epoch, from 1e12 (2001) on. Default: 2025-11-11T22:26:40Z. */
  readonly startAt?: number | undefined;
}

export interface UntilOptions {
  /** How much virtual time may pass, in ms. Default 60000. */
  readonly within?: number | undefined;
}

/** Fencing tokens are made of the time, and have their number of digits from then on. */
const EARLIEST_MS = 1e12;

const OPTIONS = new Schema({
  startAt: integer({ min: EARLIEST_MS }).default(EPOCH_MS),
} satisfies ShapeOf<VirtualClockOptions>);
const UNTIL = new Schema({ within: DURATION.default(60_000) } satisfies ShapeOf<UntilOptions>);
const NAME = text({ min: 1 });
const PROMISE = objectWith<PromiseLike<unknown>>(["then"]);

/** Clocks that go right; the rate of error is 0. */
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

  /** The milliseconds that have passed since the start. */
  get elapsedMs(): number {
    return this.#world.nowMs;
  }

  /** Lets `ms` pass, and everything happen that is due until then. Throws `LockViolationError` if a check fails. */
  async advance(ms: number): Promise<void> {
    DURATION.of("ms", ms);
    await this.#inTurn(() => this.#run(ms));
  }

  /** Lets time pass until the promise settles, and settles as it does. Rejects if it has not settled in time. */
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

  /** Returns another process, with clocks of its own, in the same time. */
  process(name: string): VirtualProcess {
    return new VirtualProcess(machineOn(this.#world, NAME.of("name", name)));
  }

  /** Checks all locks that are taken on this clock from now on, after every turn of the event loop. */
  checkLocks(): LockCheck {
    const check = new LockCheck(this.#world, () => this.#checks.delete(check));
    this.#checks.add(check);
    return check;
  }

  /**
   * Runs what is due now, once the test's own turn of the event loop is over. A request to a node takes no time, and
   * needs no `advance`.
   */
  #pumpSoon(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    setImmediate(() => {
      this.#isPumping = false;
      this.#inTurn(() => this.#run(0)).catch((error: unknown) => {
        // Nobody awaits this: whoever advances next is told.
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
