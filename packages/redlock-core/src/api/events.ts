/**
 * Events of a `Redlock`, which are also published on channels (`x.redlock.acquire`, …). Contention is never reported as
 * an error.
 */

import { type AllNames, Channels, Emitter, Traced } from "../kit/emitter.ts";
import type { NodeState } from "../nodes/node.ts";
import type { Vote } from "../rules/quorum.ts";
import type { LockLossReason } from "./errors.ts";

export interface RedlockEvents {
  /** An acquisition ended. `waitMs` counts from the call. */
  acquire: {
    readonly resources: readonly string[];
    readonly outcome: "acquired" | "held" | "unreachable" | "cancelled";
    readonly attempts: number;
    readonly waitMs: number;
    readonly fencingToken?: number;
    readonly votes?: readonly Vote[];
  };
  /**
   * An attempt was refused, and the call waits. Emitted after each refused attempt.
   *
   * Also emitted once per call if the call waits for another call or lock of this process. No node was asked in this
   * case, so `votes` is empty.
   */
  wait: {
    readonly resources: readonly string[];
    readonly attempts: number;
    readonly waitMs: number;
    readonly votes: readonly Vote[];
  };
  /**
   * A round of extension ended. `remainingMs` is the remaining validity after the round; a low value is the early
   * warning of a loss.
   */
  extend: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly extended: boolean;
    readonly tookMs: number;
    readonly remainingMs: number;
    /** TTL of the lock, to compare `remainingMs` with. */
    readonly ttlMs: number;
    /** Answers of the nodes, if the extension failed. */
    readonly votes?: readonly Vote[];
  };
  /**
   * A lock was released by its holder or by `close()`. `confirmed` is true if a quorum reports that the lock was held
   * until then. Also emitted, with `confirmed` false, when the lease of a lock that its holder left to expire has run
   * out.
   */
  release: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly confirmed: boolean;
    readonly heldMs: number;
  };
  /** A lock was lost while its holder still relied on it. */
  lost: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly reason: LockLossReason;
    readonly heldMs: number;
    /** Answers of the nodes to the last extension, if it failed. Empty otherwise. */
    readonly votes: readonly Vote[];
  };
  /** A node changed its state, or was found in quarantine. */
  node: {
    readonly node: string;
    readonly state: NodeState | "quarantined";
    readonly error?: string;
    readonly quarantineLeftMs?: number;
  };
}

/** Data in the messages of the tracing channels, by the name of the call: `x.redlock:acquire` and so on. */
export interface RedlockTraces {
  /** `acquire()`, `tryAcquire()`, or the acquisition in `using()`. The result is the lock, or null. */
  acquire: { readonly resources: readonly string[] };
  /** `using()` from the call to the release. The result is the routine's result. */
  using: { readonly resources: readonly string[] };
  /** `lock.extend()`. Automatic extensions are not traced, but reported by the event `extend`. */
  extend: { readonly resources: readonly string[]; readonly fencingToken: number };
  /** `lock.release()`. The result is true if the lock was held until then. */
  release: { readonly resources: readonly string[]; readonly fencingToken: number };
}

export const traces: { readonly [Call in keyof RedlockTraces]: Traced<RedlockTraces[Call]> } = {
  acquire: new Traced("x.redlock:acquire"),
  using: new Traced("x.redlock:using"),
  extend: new Traced("x.redlock:extend"),
  release: new Traced("x.redlock:release"),
};

export type RedlockEventName = keyof RedlockEvents;

const NAMES: AllNames<RedlockEvents> = {
  acquire: true,
  wait: true,
  extend: true,
  release: true,
  lost: true,
  node: true,
};

const channels = new Channels<RedlockEvents>("x.redlock", NAMES);

export function redlockEvents(): Emitter<RedlockEvents> {
  return new Emitter(NAMES, channels);
}
