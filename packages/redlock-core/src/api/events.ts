/**
 * These are the events of a `Redlock`, which are also published on channels (`x.redlock.acquire`, …). Contention is
 * never reported as an error.
 */

import { Channels, Emitter, type Known, Traced } from "../kit/emitter.ts";
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
   * An acquisition was refused and waits. The event comes each time that an attempt is refused and the call waits.
   *
   * It also comes, once per call, when the call waits for another call or lock of this process. No node is asked
   * then, so `votes` is empty.
   */
  wait: {
    readonly resources: readonly string[];
    readonly attempts: number;
    readonly waitMs: number;
    readonly votes: readonly Vote[];
  };
  /** One round of extension ended. `remainingMs` is the validity after it, which is the early warning for a loss. */
  extend: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly extended: boolean;
    readonly tookMs: number;
    readonly remainingMs: number;
    /** The lock's ttl: `remainingMs` is a share of it. */
    readonly ttlMs: number;
    /** How the nodes answered, if the extension failed. */
    readonly votes?: readonly Vote[];
  };
  /**
   * A lock was released, by its holder or by `close()`. `confirmed` is true if a quorum says that it was held until
   * then. It is false also for a lock that its holder had left to its lease, when that has run out.
   */
  release: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly confirmed: boolean;
    readonly heldMs: number;
  };
  /** A lock was lost while its holder still believed in it. */
  lost: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly reason: LockLossReason;
    readonly heldMs: number;
    /** How the nodes answered the last extension, if it failed; otherwise empty. */
    readonly votes: readonly Vote[];
  };
  /** A node changed its state, or is found in quarantine. */
  node: {
    readonly node: string;
    readonly state: NodeState | "quarantined";
    readonly error?: string;
    readonly quarantineLeftMs?: number;
  };
}

/** What the messages of the tracing channels have, by the call: `x.redlock:acquire` and so on. */
export interface RedlockTraces {
  /** `acquire()`, `tryAcquire()`, or the acquisition in `using()`; the result is the lock, or null. */
  acquire: { readonly resources: readonly string[] };
  /** `using()` from the call to the release; the result is the routine's. */
  using: { readonly resources: readonly string[] };
  /** `lock.extend()`; extensions that the lock makes by itself have no caller, and are told by the event `extend`. */
  extend: { readonly resources: readonly string[]; readonly fencingToken: number };
  /** `lock.release()`; the result tells whether the lock was held until then. */
  release: { readonly resources: readonly string[]; readonly fencingToken: number };
}

export const traces: { readonly [Call in keyof RedlockTraces]: Traced<RedlockTraces[Call]> } = {
  acquire: new Traced("x.redlock:acquire"),
  using: new Traced("x.redlock:using"),
  extend: new Traced("x.redlock:extend"),
  release: new Traced("x.redlock:release"),
};

export type RedlockEventName = keyof RedlockEvents;

const NAMES: Known<RedlockEvents> = { acquire: true, wait: true, extend: true, release: true, lost: true, node: true };

const channels = new Channels<RedlockEvents>("x.redlock", NAMES);

export function redlockEvents(): Emitter<RedlockEvents> {
  return new Emitter(NAMES, channels);
}
