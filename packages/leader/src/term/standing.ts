/** The state, options, events and nodes that the parts of an election share. */
import { type Clock, type Redlock, RedlockClosedError } from "@x/redlock-core";
import { Emitter, type LinkedSignal, linkSignals, quote, whenAborted } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { LEADER_EVENTS, type LeaderEvents, publishEvents } from "../events/events.ts";
import { Listeners } from "../events/listeners.ts";
import type { ResolvedOptions } from "../options.ts";
import { Ledger } from "../record/ledger.ts";
import { type ElectionEvent, type ElectionState, IDLE, nextState, termOf } from "../rules/state.ts";

export class Standing<Term> {
  readonly redlock: Redlock;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly events: Emitter<LeaderEvents>;
  /** The listeners of the user. */
  readonly listeners: Listeners<LeaderEvents>;
  readonly ledger: Ledger;
  /** Text that distinguishes two starts of a process, and two election objects with the same ID. */
  readonly instance: string;
  /** The last error of a node, an attempt or a renewal. Undefined if a quorum has answered since. */
  lastError: Error | undefined;
  #state: ElectionState<Term> = IDLE;

  constructor(redlock: Redlock, options: ResolvedOptions) {
    const { id, name, resource } = options;
    this.redlock = redlock;
    this.options = options;
    this.clock = protocolOf(redlock).clock;
    this.events = new Emitter<LeaderEvents>(LEADER_EVENTS);
    this.ledger = new Ledger(redlock, name, resource);
    this.instance = `${id}#${Math.floor(this.random() * 2 ** 48).toString(36)}`;
    publishEvents(this.events, { election: name, candidate: id }, options.renewDeadline);
    this.listeners = new Listeners({
      events: this.events,
      subject: `election ${quote(name)}`,
      failures: {
        nodeFailed: ({ error }) => ({ text: "a lock node is down", error }),
        taskFailed: ({ error }) => ({ text: "the task failed", error, hasStack: true }),
        error: (error) => ({ text: "an attempt failed, or a listener threw", error }),
      },
    });
  }

  get state(): ElectionState<Term> {
    return this.#state;
  }

  get term(): Term | undefined {
    return termOf(this.#state);
  }

  /** Returns a random number in [0, 1). */
  random(): number {
    return protocolOf(this.redlock).random.fraction();
  }

  move(event: ElectionEvent<Term>): void {
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
    const untie = whenAborted(closed, close);
    return {
      ...linked,
      unlink: () => {
        untie();
        linked.unlink();
      },
    };
  }
}
