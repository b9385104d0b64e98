/**
 * These are the events of a `Redlock`, which are also published on channels (`x.redlock.acquire`, …). Contention is
 * never reported as an error.
 */
import type { LockLossReason, Vote } from "./errors.ts";
import { Channels, Emitter, type Known } from "./kit/emitter.ts";
import type { NodeState } from "./nodes/node.ts";

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
    /** How the nodes answered, if the extension failed. */
    readonly votes?: readonly Vote[];
  };
  /**
   * A lock was released, by its holder or by `close()`. `confirmed` is true if a quorum says that it was held until
   * then.
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

export type RedlockEventName = keyof RedlockEvents;

const NAMES: Known<RedlockEvents> = { acquire: true, wait: true, extend: true, release: true, lost: true, node: true };

const channels = new Channels<RedlockEvents>("x.redlock", NAMES);

export function redlockEvents(): Emitter<RedlockEvents> {
  return new Emitter(NAMES, channels);
}
