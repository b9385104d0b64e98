/**
 * The checker of the simulation, for the locks of a test. It knows nothing of the protocol. It asks each lock until
 * when its holder may believe in it. It compares that with the holder's clocks as they stand, whether its process runs
 * or not.
 */
import { channel } from "node:diagnostics_channel";
import type { Lock } from "@x/redlock-core";
import { integer, text } from "@x/redlock-core/protocol";
import { type Hold, LockChecker } from "./checker.ts";
import { type Machine, machinesOf } from "./world/machine.ts";
import type { Violation, World } from "./world/world.ts";

const RESOURCE = text({ min: 1 });
const TOKEN = integer({ min: 0, unit: "" });
const ACTED = "acted without the lock";

/** The messages have the result of `acquire`, `tryAcquire` and the acquisition in `using`. */
const acquired = channel("tracing:x.redlock:acquire:asyncEnd");

/** Something happened that a lock must never let happen. */
export class LockViolationError extends Error {
  override readonly name: string = "LockViolationError";
  /** What was broken, for instance `exclusion`. */
  readonly invariant: string;
  /** When, in ms of virtual time since the start. */
  readonly atMs: number;

  constructor({ invariant, message, atMs }: Violation) {
    super(`${invariant}, after ${Math.round(atMs)} ms: ${message}`);
    this.invariant = invariant;
    this.atMs = atMs;
  }
}

export class LockCheck {
  readonly #world: World;
  readonly #checker: LockChecker;
  /** The holds by resource and fencing token: a token is unique for its resource only. */
  readonly #holds = new Map<string, Hold>();
  readonly #onStop: () => void;
  readonly #listener = (message: unknown): void => this.#granted((message as { readonly result?: Lock | null }).result);

  /** Is called by `VirtualClock.checkLocks`. */
  constructor(world: World, onStop: () => void) {
    this.#world = world;
    this.#checker = new LockChecker(world);
    this.#onStop = onStop;
    acquired.subscribe(this.#listener);
  }

  /** How many locks were granted while it looked. */
  get grants(): number {
    return this.#checker.grantCount;
  }

  /**
   * Is to be called by a test's stand-in for what the lock protects, when something is done to it under a lock. It is a
   * violation if the holder of this fencing token has lost the lock by then, or released it.
   */
  acted(resource: string, fencingToken: number): void {
    RESOURCE.of("resource", resource);
    TOKEN.of("fencingToken", fencingToken);
    this.#checker.check();
    const hold = this.#holds.get(keyOf(resource, fencingToken));
    if (hold === undefined) {
      this.#world.violate(ACTED, `nobody was granted ${resource} with fencing token ${fencingToken}`);
      return;
    }
    if (!this.#checker.believes(hold)) {
      this.#world.violate(ACTED, `${hold.machine.name} acted on ${resource} when its lock (${fencingToken}) had ended`);
    }
    this.#checker.write(hold, resource);
  }

  /**
   * Throws `LockViolationError` if anything was violated so far; `advance` and `until` of the clock throw it as well.
   */
  verify(): void {
    this.look();
    if (this.#world.violation !== undefined) throw new LockViolationError(this.#world.violation);
  }

  /** Looks at all locks now, as the clock does after every turn of the event loop. */
  look(): void {
    this.#checker.check();
  }

  /** Ends the check. */
  stop(): void {
    acquired.unsubscribe(this.#listener);
    this.#onStop();
  }

  [Symbol.dispose](): void {
    this.stop();
  }

  #granted(lock: Lock | null | undefined): void {
    if (lock === null || lock === undefined) return;
    const machine = machinesOf(this.#world).find((each) => isOn(each, lock));
    if (machine === undefined) return;
    const hold = this.#checker.granted(machine, lock);
    for (const resource of hold.resources) this.#holds.set(keyOf(resource, hold.fencingToken), hold);
  }
}

function keyOf(resource: string, fencingToken: number): string {
  return `${fencingToken} ${resource}`;
}

/** This is so early that whatever is held then ends long afterwards. */
const LONG_AGO_MS = -(2 ** 42);

/** Tells whether a lock runs on a machine's clock. */
function isOn(machine: Machine, lock: Lock): boolean {
  const longAgo = { monotonicMs: LONG_AGO_MS, wallMs: LONG_AGO_MS, suspendedMs: machine.suspendedMs() };
  return machine.withClock(longAgo, () => lock.remaining()) > -LONG_AGO_MS / 2;
}
