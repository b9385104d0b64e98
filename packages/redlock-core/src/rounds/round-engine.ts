import type { ResolvedOptions } from "../api/options.ts";
import type { Clock } from "../kit/clock.ts";
import type { Deadlines } from "../kit/deadlines.ts";
import type { Random } from "../kit/random.ts";
import type { LockNode } from "../nodes/node.ts";
import type { Targets } from "../rules/resources.ts";
import type { Batcher } from "./batcher.ts";
import type { FencingClock } from "./fencing-clock.ts";

/** The part of the engine that rounds, scripts and waiters need (see lock/engine.ts). */
export interface RoundEngine {
  readonly nodes: readonly LockNode[];
  readonly batchers: readonly Batcher[];
  readonly quorum: number;
  /** Bit mask with the bit of every node set. */
  readonly everyNode: number;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: Random;
  readonly fencingClock: FencingClock;
  /** Deadlines of rounds with the timeout `nodeTimeout`. */
  readonly deadlines: Deadlines;
  readonly targets: Targets;
}
