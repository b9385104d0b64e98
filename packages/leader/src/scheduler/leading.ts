/**
 * The scheduler as the leader: runs the ticks of one term at a time, and records their outcomes.
 *
 * Guaranteed: a register has one writer, because two schedulers with the same `keyPrefix` cannot lead the same term.
 * The process stays alive until the handlers have ended, but no longer than `drainTimeout` after the term or the
 * scheduler is asked to end.
 */
import { deferred, type Emitter, inTime, linkSignals, shaped, whenAborted } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import type { LeaderElection } from "../election/election.ts";
import { keepAlive } from "../kit/keep-alive.ts";
import type { LeaderTerm } from "../leader-term.ts";
import type { Ledger } from "../record/ledger.ts";
import type { CodeSchedules } from "./code-schedules.ts";
import type { SchedulerEvents } from "./events.ts";
import { Recorder } from "./recorder.ts";
import type { RegisterStore } from "./register-store.ts";
import { SchedulerTerm } from "./scheduler-term.ts";

interface LeadingParts {
  readonly election: LeaderElection;
  readonly concurrency: number;
  readonly drainTimeout: number;
  /** The number of past ticks to record for each schedule. */
  readonly kept: number;
  readonly prefix: string;
  readonly code: CodeSchedules;
  readonly ledger: Ledger;
  readonly events: Emitter<SchedulerEvents>;
  /** Aborts when the scheduler stops. */
  readonly stopped: AbortSignal;
  readonly store: () => RegisterStore;
}

const TERM = shaped<LeaderTerm>(
  "a LeaderTerm",
  ({ election, isCurrent, signal }) =>
    typeof election === "string" && typeof isCurrent === "function" && signal instanceof AbortSignal,
);

/** Key prefixes of the schedulers that lead in a term. Each register has one writer. */
const ledTerms = new WeakMap<LeaderTerm, Set<string>>();

export class Leading {
  readonly #parts: LeadingParts;
  #current: { readonly session: SchedulerTerm; readonly ended: Promise<void> } | undefined;
  /** Writes of the last term's history. Undefined if there was no term. */
  #recording: Promise<void> | undefined;

  constructor(parts: LeadingParts) {
    this.#parts = parts;
  }

  /** The schedules in the current term. Undefined if the scheduler does not lead. */
  get session(): SchedulerTerm | undefined {
    return this.#current?.session;
  }

  /** See `LeaderScheduler.lead`. */
  async lead(term: LeaderTerm): Promise<void> {
    TERM.of("term", term);
    const { election, prefix, ledger, drainTimeout, stopped, events } = this.#parts;
    if (term.election !== election.name)
      throw new RangeError(`term must be of election "${election.name}", got "${term.election}"`);
    if (this.#current !== undefined)
      throw new RangeError("term must be the only one that this scheduler leads, got a second one");
    const prefixes = ledTerms.get(term) ?? new Set();
    if (prefixes.has(prefix))
      throw new RangeError("term must be led by one scheduler at a time with this keyPrefix, got a second one");
    ledTerms.set(term, prefixes.add(prefix));
    const { clock } = protocolOf(election.redlock);
    const over = linkSignals(term.signal, stopped);
    const session = this.#sessionOf(term, over.signal);
    const recorder = this.#recorderOf(term.term, session);
    const ended = deferred<void>();
    this.#current = { session, ended: ended.promise };
    const listening = ledger.listen((news) => {
      if (news === "schedules") session.hear();
    });
    listening.catch((error: unknown) => events.emit("error", error));
    const letGo = keepAlive(clock);
    let disarm = (): void => undefined;
    whenAborted(over.signal, () => {
      disarm = clock.schedule(drainTimeout, letGo);
    });
    try {
      await session.run();
    } finally {
      this.#recording = recorder?.end();
      await listening.then((stop) => stop()).catch(() => undefined);
      prefixes.delete(prefix);
      this.#current = undefined;
      over.unlink();
      disarm();
      letGo();
      ended.resolve();
    }
  }

  /** Waits for the handlers of the current term, but no longer than `timeoutMs`. Never rejects. */
  handlersEnded(timeoutMs: number = this.#parts.drainTimeout): Promise<void> {
    const { clock } = protocolOf(this.#parts.election.redlock);
    const ended = this.#current?.ended ?? Promise.resolve();
    return inTime(clock, ended, { timeoutMs, otherwise: "a handler goes on", keepAlive: true }).catch(() => undefined);
  }

  /** Resolves when the history of the last term is written. */
  async recordingEnded(): Promise<void> {
    await this.#recording;
  }

  #sessionOf(term: LeaderTerm, over: AbortSignal): SchedulerTerm {
    const { election, code, concurrency, events, store } = this.#parts;
    const { clock, random } = protocolOf(election.redlock);
    return new SchedulerTerm({
      term,
      store: store(),
      clock,
      random: () => random.fraction(),
      entries: code.entries,
      handlers: code.handlers,
      concurrency,
      events,
      over,
    });
  }

  #recorderOf(term: number, session: SchedulerTerm): Recorder | undefined {
    const { election, kept, events, store } = this.#parts;
    if (kept === 0) return undefined;
    const { clock } = protocolOf(election.redlock);
    return new Recorder({ term, store: store(), clock, events, kept, nextOf: (name) => session.nextOf(name) });
  }
}
