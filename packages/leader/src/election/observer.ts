/**
 * An observer sees every leader of an election, in order, from any process.
 *
 * The observer does not poll at a fixed rate. The nodes publish each change, and the observer also reads when the last
 * seen lease would end. After a lost connection, it reads the missed terms from the nodes' history (the last 1,000).
 *
 * The result is informational: only the leader itself can know, by its clock, that it leads *now*.
 */
import { callQuietly, type LinkedSignal, linkSignals, onAbort } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { channels } from "../kit/diagnostics.ts";
import { Naps } from "../kit/naps.ts";
import { type Held, heldNow, type LeaderInfo, type NodeRecord, newestTerm, termsAfter } from "../rules/record.ts";
import { dateOf } from "../rules/values.ts";
import type { Standing } from "../term/standing.ts";

type ObserverListener = (info: LeaderInfo | null) => unknown;

/**
 * The observer reads this long after the end of a lease was due, because nodes expire keys with a resolution of 1 ms.
 */
const PAST_EXPIRY_MS = 5;
/** Observers of the same lease spread their reads over this time. */
const SPREAD_MS = 50;
/** The shortest pause between two reads, including after a failure. */
const SHORTEST_PAUSE_MS = 20;
/** The greatest number of values that wait for a slow consumer. */
const MOST_WAITING = 1_000;

export class Observer {
  readonly #standing: Standing<unknown>;
  readonly #listeners = new Set<ObserverListener>();
  #running: LinkedSignal | undefined;
  #isClosed = false;
  #vacantSinceMs: number | undefined;
  #last: { readonly info: LeaderInfo | null; readonly term: number; readonly revision: number } | undefined;

  constructor(standing: Standing<unknown>) {
    this.#standing = standing;
  }

  /** Milliseconds since this observer saw the last leader end, while there is no leader. Undefined otherwise. */
  get vacancyMs(): number | undefined {
    return this.#vacantSinceMs === undefined ? undefined : this.#standing.clock.monotonicMs() - this.#vacantSinceMs;
  }

  /**
   * Calls `listener` with the current leader, then with each change. Returns a function that removes the listener. An
   * error of the listener is reported.
   */
  watch(listener: ObserverListener): () => void {
    if (this.#isClosed) return () => undefined;
    const own: ObserverListener = (info) =>
      callQuietly(
        () => listener(info),
        (error) => this.#standing.report(error),
      );
    this.#listeners.add(own);
    if (this.#running === undefined) this.#start();
    else if (this.#last !== undefined) own(this.#last.info);
    return () => {
      this.#listeners.delete(own);
      if (this.#listeners.size === 0) this.#stop();
    };
  }

  /**
   * Iterates over the values of `watch` until the signal aborts. Beyond `MOST_WAITING`, the oldest values are dropped.
   */
  async *values(signal: AbortSignal): AsyncGenerator<LeaderInfo | null, void, undefined> {
    const waiting: (LeaderInfo | null)[] = [];
    let wake: () => void = () => undefined;
    const stopWatching = this.watch((info) => {
      waiting.push(info);
      if (waiting.length > MOST_WAITING) waiting.shift();
      wake();
    });
    const untie = onAbort(signal, () => wake());
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
      untie();
      stopWatching();
    }
  }

  /** Removes all listeners and stops reading. */
  close(): void {
    this.#isClosed = true;
    this.#listeners.clear();
    this.#stop();
  }

  #start(): void {
    const running = linkSignals(protocolOf(this.#standing.redlock).closed);
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
    const { clock, ledger, options } = this.#standing;
    const naps = new Naps(clock);
    let stopListening: (() => void) | undefined;
    while (!signal.aborted) {
      let pauseMs = options.leaseDuration / 10;
      try {
        stopListening ??= await ledger.listen(() => naps.wake());
        // A quorum may contain too few grants of a leader that other nodes know, so `look` waits for more nodes.
        const views = await ledger.look(this.#last?.term ?? Number.MAX_SAFE_INTEGER);
        if (!signal.aborted) pauseMs = this.#see(views);
      } catch (error) {
        if (!signal.aborted) this.#standing.report(error);
      }
      await naps.nap(Math.max(SHORTEST_PAUSE_MS, pauseMs + SPREAD_MS * this.#standing.random()), signal);
    }
    stopListening?.();
  }

  /** Notifies the listeners of changes. Returns the milliseconds until the next read if no message arrives. */
  #see(views: readonly NodeRecord[]): number {
    const { instance, ledger, options } = this.#standing;
    const held = heldNow(views, ledger.quorum);
    const isFirst = this.#last === undefined;
    const before = this.#last ?? { info: null, term: newestTerm(views), revision: -1 };
    for (const record of isFirst ? [] : termsAfter(views, before.term)) {
      if (record.term !== held?.record.term)
        this.#tell(infoOf({ record, revision: 0, expiresInMs: 0 }, instance), record.term, 0);
    }
    const last = this.#last ?? before;
    if (held === undefined) {
      if (isFirst || last.info !== null) this.#tell(null, last.term, last.revision);
      return options.leaseDuration;
    }
    const isNews = isFirst || last.info === null || held.record.term > last.term || held.revision > last.revision;
    if (isNews && held.record.term >= last.term) this.#tell(infoOf(held, instance), held.record.term, held.revision);
    return held.expiresInMs + PAST_EXPIRY_MS;
  }

  #tell(info: LeaderInfo | null, term: number, revision: number): void {
    this.#last = { info, term, revision };
    const { vacancyMs } = this;
    const { clock, options } = this.#standing;
    const election = options.name;
    this.#vacantSinceMs = info === null ? (this.#vacantSinceMs ?? clock.monotonicMs()) : undefined;
    channels.publish("leaderChanged", () => ({ election, leader: info?.id, term: info?.term, vacancyMs }));
    for (const listener of [...this.#listeners]) listener(info);
  }
}

/** Returns the facts about a leader for the election object with this `instance`. */
export function infoOf(held: Held, instance: string): LeaderInfo {
  const { record } = held;
  return {
    id: record.id,
    term: record.term,
    ...(record.value === undefined ? {} : { value: record.value }),
    acquiredAt: dateOf(record.sinceMs),
    expiresInMs: held.expiresInMs,
    self: record.instance === instance,
  };
}
