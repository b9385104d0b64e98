import type { Known } from "@x/redlock-core/protocol";
import type { TermLossReason } from "../errors.ts";
import type { LeaderInfo } from "../record/record.ts";
import type { LeaderTerm } from "../term/term.ts";

/** All durations in ms. */
export interface LeaderEvents {
  elected: LeaderTerm;
  /** Once per elected term. `heldMs`: since it was elected. */
  lost: { readonly term: number; readonly reason: TermLossReason; readonly heldMs: number };
  /** As `observe()` sees it; observing starts with the first listener and ends with `stop()`. */
  leaderChange: LeaderInfo | null;
  /** `remainingMs`: until the deadline, when the answer came. */
  renewed: { readonly term: number; readonly tookMs: number; readonly remainingMs: number };
  renewFailed: { readonly term: number; readonly error: unknown; readonly remainingMs: number };
  /** The task still runs though the lease has ended; once more when it has ended, with the final figure. */
  overrun: { readonly term: number; readonly overrunMs: number };
  drainTimeout: { readonly term: number };
  /** A lock node could not be reached, or failed so that no quorum was left. Once, until it answers again; while this object campaigns or runs. */
  nodeDown: { readonly node: string; readonly error: Error };
  /** Nodes are new, restarted, or lost their data: a quorum casts no vote, and so nobody is elected, for `quarantineLeftMs`. Once each time. */
  quarantined: { readonly quarantineLeftMs: number };
  taskError: { readonly term: number; readonly error: unknown };
  /** Something failed and is tried again, or a listener threw. Nothing happens if nobody listens. */
  error: unknown;
}

export const LEADER_EVENTS: Known<LeaderEvents> = {
  elected: true,
  lost: true,
  leaderChange: true,
  renewed: true,
  renewFailed: true,
  overrun: true,
  drainTimeout: true,
  nodeDown: true,
  quarantined: true,
  taskError: true,
  error: true,
};
