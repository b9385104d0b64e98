/**
 * The simulation's checker, applied to the locks of a test. The checker does not know the protocol. The checker reads
 * from each lock until when the holder may rely on the lock, and compares this time with the holder's clocks, even
 * while the holder's process is frozen.
 */
import { channel } from "node:diagnostics_channel";
import type { Lock } from "@x/redlock-core";
import { integer, text } from "@x/redlock-core/kit";
import { type Hold, LockChecker } from "./checker.ts";
import { type Machine, machinesOf } from "./world/machine.ts";
import type { Violation, World } from "./world/world.ts";

const RESOURCE = text({ min: 1 });
const TOKEN = integer({ min: 0, unit: "" });
const ACTED = "acted without the lock";

/** The messages contain the result of `acquire`, `tryAcquire` and the acquisition in `using`. */
const acquired = channel("tracing:x.redlock:acquire:asyncEnd");

/** A lock failed to protect its resource. */
export class LockViolationError extends Error {
  override readonly name: string = "LockViolationError";
  /** The violated invariant, for instance `exclusion`. */
  readonly invariant: string;
  /** The virtual time of the violation in ms since the start. */
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
  /** Held locks by resource and fencing token. A token is unique only within its resource. */
  readonly #holds = new Map<string, Hold>();
  readonly #onStop: () => void;
  readonly #listener = (message: unknown): void => this.#granted((message as { readonly result?: Lock | null }).result);

  /** Called by `VirtualClock.checkLocks`. */
  constructor(world: World, onStop: () => void) {
    this.#world = world;
    this.#checker = new LockChecker(world);
    this.#onStop = onStop;
    acquired.subscribe(this.#listener);
  }

  /** Number of locks granted since the check started. */
  get grants(): number {
    return this.#checker.grantCount;
  }

  /**
   * Reports an action on `resource` under a lock. Call `acted` from a test's replacement for the protected store. The
   * action is a violation if the holder of `fencingToken` has lost or released the lock.
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
   * Throws `LockViolationError` if the check has found a violation. `advance` and `until` of the clock throw the same
   * error.
   */
  verify(): void {
    this.look();
    if (this.#world.violation !== undefined) throw new LockViolationError(this.#world.violation);
  }

  /** Checks all locks now. The clock calls `look` after every turn of the event loop. */
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

/** A time so early that any lock held then ends much later. */
const LONG_AGO_MS = -(2 ** 42);

/** Whether a lock uses the clock of a machine. */
function isOn(machine: Machine, lock: Lock): boolean {
  const longAgo = { monotonicMs: LONG_AGO_MS, wallMs: LONG_AGO_MS, suspendedMs: machine.suspendedMs() };
  return machine.withClock(longAgo, () => lock.remaining()) > -LONG_AGO_MS / 2;
}
