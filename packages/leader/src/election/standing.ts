/** What the candidate run and the leader run of an election share: its means, and what it is doing. */
import { type Clock, type Redlock, RedlockClosedError } from "@x/redlock-core";
import { type Emitter, type LinkedSignal, linkSignals, onAbort, protocolOf } from "@x/redlock-core/protocol";
import type { LeaderEvents } from "../events/events.ts";
import type { ResolvedOptions } from "../options.ts";
import type { HeldTerm } from "../term/term.ts";
import { type ElectionEvent, type ElectionState, IDLE, nextState, termOf } from "./state.ts";

interface StandingParts {
  readonly redlock: Redlock;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: () => number;
  readonly events: Emitter<LeaderEvents>;
}

export class Standing {
  readonly redlock: Redlock;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: () => number;
  readonly events: Emitter<LeaderEvents>;
  /** Why a node, an attempt or a renewal failed last, unless a quorum has answered since. */
  lastError: Error | undefined;
  #state: ElectionState<HeldTerm> = IDLE;

  constructor({ redlock, options, clock, random, events }: StandingParts) {
    this.redlock = redlock;
    this.options = options;
    this.clock = clock;
    this.random = random;
    this.events = events;
  }

  get state(): ElectionState<HeldTerm> {
    return this.#state;
  }

  get term(): HeldTerm | undefined {
    return termOf(this.#state);
  }

  move(event: ElectionEvent<HeldTerm>): void {
    this.#state = nextState(this.#state, event);
  }

  report(error: unknown): void {
    this.events.emit("error", error);
  }

  /** Returns a signal that aborts with the first of `sources`, or with `RedlockClosedError`. */
  whileOpen(...sources: readonly (AbortSignal | undefined)[]): LinkedSignal {
    const { closed } = protocolOf(this.redlock);
    const linked = linkSignals(...sources);
    const close = (): void => linked.abort(new RedlockClosedError([this.options.resource]));
    if (closed.aborted) close();
    const untie = onAbort(closed, close);
    return {
      ...linked,
      unlink: () => {
        untie();
        linked.unlink();
      },
    };
  }
}
