/** The events of effects and relays, which are also published on channels (`x.effects.committed`, …). */
import { Channels, type LogLine, type LogLines } from "@x/redlock-core/kit";

interface AboutEffect {
  /** The inbox ID: a JSON array with the job or key, and the step. */
  readonly effectId: string;
  readonly resources: readonly string[];
  readonly fencingToken: number;
}

export interface EffectsEvents {
  /** A transaction of `once` was committed, after `tookMs` and with this number of outbox rows. */
  committed: AboutEffect & { readonly tookMs: number; readonly rows: number };
  /** An earlier call has committed the effect, so `once` returned the stored result and ran nothing. */
  repeated: AboutEffect;
  /** A newer holder has claimed one of the resources, so `once` rejects with `FencedOffError`. */
  fencedOff: AboutEffect;
  /** Attempt number `attempt` failed because of a lost connection or a conflict. `once` makes another attempt. */
  retried: { readonly effectId: string; readonly attempt: number; readonly error: Error };
  /** A listener threw. */
  error: unknown;
}

export interface RelayEvents {
  /**
   * Jobs were added to the queue, and their rows were deleted, or kept as relayed with `keepFor`. `oldestMs` is the age
   * of the oldest of these rows.
   */
  relayed: { readonly queue: string; readonly rows: number; readonly oldestMs: number };
  /** Rows of a queue could not be relayed, and are tried again. The rows of other queues continue. */
  relayFailed: { readonly queue: string; readonly error: Error };
  /** The open rows of the outbox, every 5 s on the leader. The outbox is read only while the event has a listener. */
  backlogMeasured: OutboxBacklog;
  /** The relay failed and tries again, or a listener threw. */
  error: unknown;
}

/** The rows that wait for the relay. */
export interface OutboxBacklog {
  /** Number of rows, counted up to 100,000. */
  readonly rows: number;
  /** Age of the oldest counted row, in ms. 0 if the outbox is empty. */
  readonly oldestMs: number;
}

/** Ends the subscription. */
export type StopListening = () => void;

const FAILED: LogLine<unknown> = ["warn", "failed and is tried again, or a listener threw"];

export const EFFECTS_EVENTS: LogLines<EffectsEvents> = {
  committed: ["debug", "effect committed"],
  repeated: ["debug", "effect was committed by an earlier call"],
  fencedOff: ["warn", "effect refused, a newer holder has a resource"],
  retried: ["debug", "effect failed, and is tried again"],
  error: FAILED,
};

export const RELAY_EVENTS: LogLines<RelayEvents> = {
  relayed: ["debug", "outbox rows relayed"],
  relayFailed: ["warn", "outbox rows not relayed, and are tried again"],
  backlogMeasured: ["debug", "outbox backlog measured"],
  error: FAILED,
};

export const effectsChannels: Channels<EffectsEvents> = new Channels("x.effects", EFFECTS_EVENTS);
export const relayChannels: Channels<RelayEvents> = new Channels("x.effects", RELAY_EVENTS);
