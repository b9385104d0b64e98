/**
 * Events of a `Redlock`, which are also published on channels (`x.redlock.acquired`, …). Contention is never reported
 * as an error.
 */

import { Channels, Emitter, Traced } from "../kit/emitter.ts";
import type { LogLevel, LogLines } from "../kit/log.ts";
import type { NodeState } from "../nodes/node.ts";
import type { Vote } from "../rules/quorum.ts";
import type { LockLossReason } from "./errors.ts";

export interface RedlockEvents {
  /** A lock was acquired. `waitMs` counts from the call. */
  acquired: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly attempts: number;
    readonly waitMs: number;
  };
  /**
   * An acquisition ended without the lock, or `tryAcquire` resolved with null. `held`: another holder has a resource.
   * `unreachable`: too few nodes answered. `cancelled`: the signal was aborted or the `Redlock` was closed.
   */
  acquireFailed: {
    readonly resources: readonly string[];
    readonly reason: "held" | "unreachable" | "cancelled";
    readonly attempts: number;
    readonly waitMs: number;
    /** Answers of the nodes to the last attempt. Empty if no node was asked. */
    readonly votes: readonly Vote[];
  };
  /**
   * An attempt was refused, and the call waits. Emitted after each refused attempt.
   *
   * Also emitted once per call if the call waits for another call or lock of this process. No node was asked in this
   * case, so `votes` is empty.
   */
  refused: {
    readonly resources: readonly string[];
    readonly attempts: number;
    readonly waitMs: number;
    readonly votes: readonly Vote[];
  };
  /**
   * A lock was extended. `remainingMs` is the validity after the extension. `ttlMs` is the TTL of the lock, to compare
   * `remainingMs` with.
   */
  extended: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly tookMs: number;
    readonly remainingMs: number;
    readonly ttlMs: number;
  };
  /** A round of extension failed. `remainingMs` is the validity that is left: the early warning of a loss. */
  extendFailed: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly tookMs: number;
    readonly remainingMs: number;
    readonly ttlMs: number;
    /** Answers of the nodes. */
    readonly votes: readonly Vote[];
  };
  /**
   * A lock was released by its holder or by `close()`. `confirmed` is true if a quorum reports that the lock was held
   * until then. Also emitted, with `confirmed` false, when the lease of a lock that its holder left to expire has run
   * out.
   */
  released: {
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
  nodeChanged: {
    readonly node: string;
    readonly state: NodeState | "quarantined";
    readonly error?: Error;
    readonly quarantineLeftMs?: number;
  };
}

/** Data in the messages of the tracing channels, by the name of the call: `x.redlock:acquire` and so on. */
export interface RedlockTraces {
  /** `acquire()`, `tryAcquire()`, or the acquisition in `using()`. The result is the lock, or null. */
  acquire: { readonly resources: readonly string[] };
  /** `using()` from the call to the release. The result is the routine's result. */
  using: { readonly resources: readonly string[] };
  /** `lock.extend()`. Automatic extensions are not traced, but reported by the event `extended`. */
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

const LINES: LogLines<RedlockEvents> = {
  acquired: ["debug", "lock acquired"],
  acquireFailed: [({ reason }) => (reason === "unreachable" ? "warn" : "debug"), "lock not acquired"],
  refused: ["debug", "attempt refused, the call waits for the lock"],
  extended: ["debug", "lock extended"],
  extendFailed: ["warn", "lock not extended"],
  released: ["debug", "lock released"],
  lost: ["error", "lock lost"],
  nodeChanged: [({ state }) => levelOf(state), "lock node changed its state"],
};

function levelOf(state: RedlockEvents["nodeChanged"]["state"]): LogLevel {
  if (state === "down" || state === "quarantined") return "warn";
  return state === "ready" ? "info" : "debug";
}

const channels = new Channels<RedlockEvents>("x.redlock", LINES);

export function redlockEvents(): Emitter<RedlockEvents> {
  return new Emitter(LINES, channels);
}
