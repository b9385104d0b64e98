/**
 * An observer sees every leader of an election, in order, from any process.
 *
 * Nobody is polled at a fixed rate. The nodes publish each change, and in between the observer reads when the lease
 * that it saw would end. Terms that came and went while it was cut off are read from the nodes' history (the last
 * 1,000).
 *
 * What it sees is informational: only the leader itself can know, by its clock, who leads *now*.
 */
import type { Clock } from "@x/redlock-core";
import { type LinkedSignal, linkSignals } from "@x/redlock-core/protocol";
import { dateOf } from "../kit/date.ts";
import { publish } from "../kit/diagnostics.ts";
import { Naps } from "../kit/naps.ts";
import type { Ledger } from "../record/ledger.ts";
import {
  type Held,
  heldNow,
  type LeaderInfo,
  type NodeView,
  newestTerm,
  type TermRecord,
  termsAfter,
} from "../record/record.ts";

interface ObserverParts {
  readonly ledger: Ledger;
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly random: () => number;
  readonly isSelf: (record: TermRecord) => boolean;
  readonly failed: (error: unknown) => void;
  /** This signal aborts when there is nobody left to ask. */
  readonly closed: AbortSignal;
}

export type ObserverListener = (info: LeaderInfo | null) => void;

/**
 * The observer reads this long after the end of a lease was due, because nodes expire keys with a resolution of 1 ms.
 */
const PAST_EXPIRY_MS = 5;
/** Observers that saw the same lease spread over this time, so that they do not read in the same moment. */
const SPREAD_MS = 50;
/** This pause is enough to see that there is no leader, and to read again after a failure, without asking often. */
const SHORTEST_PAUSE_MS = 20;

export class Observer {
  readonly #parts: ObserverParts;
  readonly #listeners = new Set<ObserverListener>();
  #running: LinkedSignal | undefined;
  #isClosed = false;
  #vacantSinceMs: number | undefined;
  #last: { readonly info: LeaderInfo | null; readonly term: number; readonly revision: number } | undefined;

  constructor(parts: ObserverParts) {
    this.#parts = parts;
  }

  /** How long there has been no leader, or was none before this one. It is undefined if that was not seen. */
  get vacancyMs(): number | undefined {
    return this.#vacantSinceMs === undefined ? undefined : this.#parts.clock.monotonicMs() - this.#vacantSinceMs;
  }

  /** Calls `listener` with the leader of now, then with each change. Returns a function that ends that. */
  watch(listener: ObserverListener): () => void {
    if (this.#isClosed) return () => undefined;
    const own: ObserverListener = (info) => listener(info);
    this.#listeners.add(own);
    if (this.#running === undefined) this.#start();
    else if (this.#last !== undefined) own(this.#last.info);
    return () => {
      this.#listeners.delete(own);
      if (this.#listeners.size === 0) this.#stop();
    };
  }

  /** Ends all watching: nobody is told of anything any more. */
  close(): void {
    this.#isClosed = true;
    this.#listeners.clear();
    this.#stop();
  }

  #start(): void {
    const running = linkSignals(this.#parts.closed);
    this.#running = running;
    this.#last = undefined;
    void this.#loop(running.signal).finally(() => running.unlink());
  }

  #stop(): void {
    this.#running?.abort(undefined);
    this.#running = undefined;
  }

  /** Reads until the signal aborts. The promise never rejects. */
  async #loop(signal: AbortSignal): Promise<void> {
    const { clock, failed, leaseMs, ledger, random } = this.#parts;
    const naps = new Naps(clock);
    let stopListening: (() => void) | undefined;
    while (!signal.aborted) {
      let pauseMs = leaseMs / 10;
      try {
        stopListening ??= await ledger.listen(() => naps.wake());
        // Until a node answers more than a quorum needs, a leader may look absent that the others know.
        const views = await ledger.look(this.#last?.term ?? Number.MAX_SAFE_INTEGER);
        if (!signal.aborted) pauseMs = this.#see(views);
      } catch (error) {
        if (!signal.aborted) failed(error);
      }
      await naps.nap(Math.max(SHORTEST_PAUSE_MS, pauseMs + SPREAD_MS * random()), signal);
    }
    stopListening?.();
  }

  /** Tells the listeners what is new, and returns for how long nothing can change without a message. */
  #see(views: readonly NodeView[]): number {
    const held = heldNow(views, this.#parts.ledger.quorum);
    const isFirst = this.#last === undefined;
    const before = this.#last ?? { info: null, term: newestTerm(views), revision: -1 };
    for (const record of isFirst ? [] : termsAfter(views, before.term)) {
      if (record.term !== held?.record.term)
        this.#tell(infoOf({ record, revision: 0, expiresInMs: 0 }, this.#parts.isSelf), record.term, 0);
    }
    const last = this.#last ?? before;
    if (held === undefined) {
      if (isFirst || last.info !== null) this.#tell(null, last.term, last.revision);
      return this.#parts.leaseMs;
    }
    const isNews = isFirst || last.info === null || held.record.term > last.term || held.revision > last.revision;
    if (isNews && held.record.term >= last.term)
      this.#tell(infoOf(held, this.#parts.isSelf), held.record.term, held.revision);
    return held.expiresInMs + PAST_EXPIRY_MS;
  }

  #tell(info: LeaderInfo | null, term: number, revision: number): void {
    this.#last = { info, term, revision };
    const { vacancyMs } = this;
    this.#vacantSinceMs = info === null ? (this.#vacantSinceMs ?? this.#parts.clock.monotonicMs()) : undefined;
    const election = this.#parts.ledger.election;
    publish("x.leader.leaderChange", () => ({ election, leader: info?.id, term: info?.term, vacancyMs }));
    for (const listener of [...this.#listeners]) listener(info);
  }
}

export function infoOf(held: Held, isSelf: (record: TermRecord) => boolean): LeaderInfo {
  const { record } = held;
  return {
    id: record.id,
    term: record.term,
    ...(record.value === undefined ? {} : { value: record.value }),
    acquiredAt: dateOf(record.sinceMs),
    expiresInMs: held.expiresInMs,
    self: isSelf(record),
  };
}

/** Iterates over values that may come faster than the consumer takes them. Beyond `bound`, the oldest are dropped. */
export async function* iterate(
  watch: (listener: ObserverListener) => () => void,
  signal: AbortSignal,
  bound: number,
): AsyncGenerator<LeaderInfo | null, void, undefined> {
  const waiting: (LeaderInfo | null)[] = [];
  let wake: () => void = () => undefined;
  const stop = watch((info) => {
    waiting.push(info);
    if (waiting.length > bound) waiting.shift();
    wake();
  });
  const end = (): void => wake();
  signal.addEventListener("abort", end, { once: true });
  try {
    while (!signal.aborted) {
      const next = waiting.shift();
      if (next !== undefined) yield next;
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  } finally {
    signal.removeEventListener("abort", end);
    stop();
  }
}
