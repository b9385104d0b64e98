/**
 * The invariants of locks, checked against true time after every turn of each client's event loop.
 *
 * A client believes that it holds a `Lock` while the lock's own `remaining()` is above 0. The checker reads the end of
 * the validity through `remaining()`, without side effects, and compares this end with the current clocks of the
 * machine.
 */
import type { Lock } from "@x/redlock-core";
import type { Instant } from "@x/redlock-core/kit";
import type { Machine } from "./world/machine.ts";
import type { World } from "./world/world.ts";

export const INVARIANTS = {
  exclusion: "exclusion",
  tokenOrder: "token order",
  fencedRegister: "fenced register",
  validRejected: "valid holder rejected",
  continuity: "continuity",
  expiry: "keys expire",
  force: "forced release",
  leftBehind: "no key left behind",
  recovery: "bounded recovery",
  answers: "bounded answers",
  honestEnd: "honest end",
} as const;

export interface Hold {
  readonly id: number;
  readonly machine: Machine;
  readonly lock: Lock;
  readonly resources: readonly string[];
  readonly fencingToken: number;
  /** Position among all grants of the run. */
  readonly order: number;
  readonly grantedMs: number;
  /** The end of the validity by the holder's own clocks. Undefined once the lock has ended. */
  end: Instant | undefined;
  /** When the validity was first seen to be over, even if the holder has not noticed yet. */
  doubtedMs: number | undefined;
  /** Whether the monotonic clock has passed the end. From this moment every extension is too late. */
  isOver: boolean;
  /** When the lock was released or lost, or its process killed. */
  endedMs: number | undefined;
  isReleased: boolean;
  /**
   * Whether other clients may have the lock although the holder does not know. The reason is a forced release, or a
   * loss of data on the only node.
   */
  isRobbed: boolean;
  /**
   * The latest end that the validity can have once a quorum has released the lock by force. Extensions that are
   * requested afterwards fail.
   */
  lastEndMs: number | undefined;
  /** The end of the lock's `maxHold`: no extension may exceed this time. */
  readonly maxHoldEndMs: number;
}

/** A forced release in progress. */
export interface Forcing {
  readonly holds: readonly Hold[];
  readonly maxTtl: number;
}

/** One bar of the picture: a client's belief to hold a resource, in true time. */
export interface Interval {
  readonly machine: string;
  readonly resource: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly fencingToken: number;
}

const FAR_MS = 2 ** 42;

/** The longest time that a request travels, apart from delays that grow with the leases. */
const LONGEST_WAY_MS = 1_500;

export class LockChecker {
  readonly #world: World;
  readonly #holds = new Set<Hold>();
  readonly #all: Hold[] = [];
  readonly #lastToken = new Map<string, number>();
  readonly #registers = new Map<string, { token: number; order: number }>();
  /**
   * The time, by resource, until which requests of a forced release may reach a node, or attempts that follow such a
   * request may be granted.
   */
  readonly #robbedUntilMs = new Map<string, number>();
  /** Locks with fencing tokens up to this token may be forgotten. */
  #forgottenToken = 0;
  grantCount = 0;

  constructor(world: World) {
    this.#world = world;
  }

  /** Records a granted lock. */
  granted(machine: Machine, lock: Lock, maxHold: number = Number.POSITIVE_INFINITY): Hold {
    const hold: Hold = {
      id: this.grantCount,
      machine,
      lock,
      resources: lock.resources,
      fencingToken: lock.fencingToken,
      order: this.grantCount,
      grantedMs: this.#world.nowMs,
      end: validityEnd(lock, machine),
      doubtedMs: undefined,
      isOver: false,
      endedMs: undefined,
      isReleased: false,
      isRobbed:
        lock.fencingToken <= this.#forgottenToken ||
        lock.resources.some((resource) => this.#world.nowMs < (this.#robbedUntilMs.get(resource) ?? 0)),
      lastEndMs: undefined,
      // The end is read with a precision of a hundredth of a millisecond.
      maxHoldEndMs: machine.monotonicMs() + maxHold + 0.01,
    };
    this.grantCount += 1;
    this.#holds.add(hold);
    this.#all.push(hold);
    for (const resource of lock.resources) {
      const last = this.#lastToken.get(resource) ?? 0;
      // A lock that was released by force before its grant arrived may be reported after the next grant.
      if (lock.fencingToken <= last && !hold.isRobbed) {
        this.#world.violate(
          INVARIANTS.tokenOrder,
          `${machine.name} was granted ${resource} with fencing token ${lock.fencingToken}, after one with ${last}`,
        );
      }
      this.#lastToken.set(resource, Math.max(last, lock.fencingToken));
    }
    return hold;
  }

  released(hold: Hold): void {
    hold.isReleased = true;
    this.#end(hold);
  }

  /** Records the start of a forced release of `resource`. */
  forcing(resource: string, maxTtl: number): Forcing {
    this.#robbedUntilMs.set(resource, this.#world.nowMs + 2 * maxTtl + LONGEST_WAY_MS);
    const holds = [...this.#holds].filter((hold) => hold.resources.includes(resource));
    for (const hold of holds) hold.isRobbed = true;
    return { holds, maxTtl };
  }

  /** Records that a quorum of nodes has released the locks by force. */
  forced({ holds, maxTtl }: Forcing): void {
    for (const hold of holds) hold.lastEndMs = hold.machine.monotonicMs() + maxTtl;
  }

  /**
   * Records that the only node, without quarantine, has lost its data. The node no longer protects locks with fencing
   * tokens up to `token`, some of which may still be on the way to their holders.
   */
  forgot(token: number): void {
    this.#forgottenToken = Math.max(this.#forgottenToken, token);
    for (const hold of this.#holds) if (hold.fencingToken <= token) hold.isRobbed = true;
  }

  /** Records that the process of `machine` was killed, so that its beliefs end. */
  killed(machine: Machine): void {
    for (const hold of this.#holds) if (hold.machine === machine) this.#end(hold);
  }

  /** Checks all held locks. Called after each turn of the event loop. */
  check(): void {
    if (this.#holds.size === 0) return;
    for (const hold of this.#holds) this.#refresh(hold);
    if (this.#holds.size < 2) return;
    const holders = new Map<string, Hold>();
    for (const hold of this.#holds) {
      for (const resource of hold.resources) {
        const other = holders.get(resource);
        holders.set(resource, hold);
        if (other !== undefined) this.#overlap(resource, other, hold);
      }
    }
  }

  /** Checks a write with a fencing token to the store that the lock protects. */
  write(hold: Hold, resource: string): void {
    const register = this.#registers.get(resource) ?? { token: 0, order: -1 };
    this.#registers.set(resource, register);
    if (hold.fencingToken >= register.token) {
      if (hold.order < register.order && !hold.isRobbed) {
        this.#world.violate(
          INVARIANTS.fencedRegister,
          `a write of ${hold.machine.name} (${hold.fencingToken}) was accepted after one of a later holder`,
        );
      }
      register.token = hold.fencingToken;
      register.order = Math.max(register.order, hold.order);
    } else if (this.believes(hold) && !hold.isRobbed) {
      this.#world.violate(
        INVARIANTS.validRejected,
        `${hold.machine.name} holds ${resource} with ${hold.fencingToken}, but ${register.token} was written before`,
      );
    }
  }

  believes(hold: Hold): boolean {
    const { end, machine } = hold;
    if (end === undefined || hold.endedMs !== undefined) return false;
    const ranMs = machine.monotonicMs() + machine.suspendedMs() - end.suspendedMs;
    return ranMs < end.monotonicMs && Math.floor(machine.wallMs()) < end.wallMs;
  }

  get intervals(): readonly Interval[] {
    return this.#all.flatMap((hold) =>
      hold.resources.map((resource) => ({
        machine: hold.machine.name,
        resource,
        fromMs: hold.grantedMs,
        toMs: hold.doubtedMs ?? hold.endedMs ?? this.#world.nowMs,
        fencingToken: hold.fencingToken,
      })),
    );
  }

  #refresh(hold: Hold): void {
    if (!hold.isReleased) {
      const before = hold.end;
      hold.end = validityEnd(hold.lock, hold.machine);
      if (before !== undefined && hold.end !== undefined && hold.end.monotonicMs > before.monotonicMs) {
        this.#extended(hold);
      }
    }
    if (hold.end === undefined) {
      this.#end(hold);
      return;
    }
    if (hold.end.monotonicMs > hold.maxHoldEndMs) {
      this.#world.violate(
        INVARIANTS.honestEnd,
        `${hold.machine.name} (${hold.fencingToken}) may hold ${hold.resources.join(", ")} for longer than maxHold`,
      );
    }
    if (hold.machine.monotonicMs() >= hold.end.monotonicMs) hold.isOver = true;
    if (hold.doubtedMs === undefined && !this.believes(hold)) hold.doubtedMs = this.#world.nowMs;
  }

  #extended(hold: Hold): void {
    this.#world.record(hold.machine.name, "call", () => `extended ${hold.resources.join(", ")} (${hold.fencingToken})`);
    if (hold.isOver) {
      this.#world.violate(
        INVARIANTS.continuity,
        `${hold.machine.name} extended ${hold.resources.join(", ")} (${hold.fencingToken}) after its validity had ended`,
      );
    }
    if (hold.lastEndMs !== undefined && hold.end !== undefined && hold.end.monotonicMs > hold.lastEndMs) {
      this.#world.violate(
        INVARIANTS.force,
        `${hold.machine.name} extended ${hold.resources.join(", ")} (${hold.fencingToken}) though a quorum had taken it away`,
      );
    }
    if (hold.isRobbed) return;
    const later = this.#all.findLast(
      (other) => other.order > hold.order && other.resources.some((resource) => hold.resources.includes(resource)),
    );
    if (later === undefined) return;
    this.#world.violate(
      INVARIANTS.continuity,
      `${hold.machine.name} extended ${hold.resources.join(", ")} (${hold.fencingToken}) though ${later.machine.name} has had it since (${later.fencingToken})`,
    );
  }

  #overlap(resource: string, a: Hold, b: Hold): void {
    if (a.isRobbed || b.isRobbed || !this.believes(a) || !this.believes(b)) return;
    this.#world.violate(
      INVARIANTS.exclusion,
      `${a.machine.name} (${a.fencingToken}) and ${b.machine.name} (${b.fencingToken}) both hold ${resource}`,
    );
  }

  #end(hold: Hold): void {
    if (hold.endedMs !== undefined) return;
    hold.endedMs = this.#world.nowMs;
    hold.end = undefined;
    this.#holds.delete(hold);
  }
}

/**
 * Returns the end of the validity by the monotonic and the wall clock, if the machine is not suspended from now on. The
 * production code computes the end. Undefined if the lock is lost or released.
 */
export function validityEnd(lock: Lock, machine: Machine): Instant | undefined {
  const suspendedMs = machine.suspendedMs();
  const byMonotonic = { monotonicMs: -FAR_MS, wallMs: -FAR_MS * 1_024, suspendedMs };
  const monotonicLeftMs = machine.withClock(byMonotonic, () => lock.remaining());
  if (monotonicLeftMs === 0) return undefined;
  const byWall = { monotonicMs: -FAR_MS * 1_024, wallMs: -FAR_MS, suspendedMs };
  const wallLeftMs = machine.withClock(byWall, () => lock.remaining());
  return { monotonicMs: monotonicLeftMs - FAR_MS, wallMs: wallLeftMs - FAR_MS, suspendedMs };
}
