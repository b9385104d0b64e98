/** Pure: what the live view shows, from the store's events and the cursor. */
import type { CursorState } from "../cursor.ts";
import type { Flight } from "../flight.ts";
import type { HistoryEvent } from "../history.ts";

export interface AirportProgress {
  readonly airport: string;
  /** The worker of the latest run that has not written yet. */
  readonly holder: string | undefined;
  readonly done: number;
  /** Enqueued and not on the board. */
  readonly backlog: number;
}

/** Follows a run event by event. */
export class Progress {
  readonly #flights: readonly Flight[];
  readonly #done = new Set<number>();
  readonly #airports = new Map<
    string,
    { holder: { run: string; worker: string } | undefined; done: number; enqueued: number }
  >();
  #enqueued = 0;
  #stale = 0;

  constructor(flights: readonly Flight[]) {
    this.#flights = flights;
  }

  /** Flights on a board. */
  get done(): number {
    return this.#done.size;
  }

  get total(): number {
    return this.#flights.length;
  }

  get staleRefused(): number {
    return this.#stale;
  }

  update(events: readonly HistoryEvent[], cursor: Pick<CursorState, "next">): void {
    for (; this.#enqueued < cursor.next; this.#enqueued++) {
      const flight = this.#flights[this.#enqueued];
      if (flight !== undefined) this.#airport(flight.origin).enqueued++;
    }
    for (const { kind, run, worker, flight, origin } of events) {
      const airport = this.#airport(origin);
      if (kind === "begin") airport.holder = { run, worker };
      else if (airport.holder?.run === run) airport.holder = undefined;
      if (kind === "stale") this.#stale++;
      if (kind === "written" && !this.#done.has(flight)) {
        this.#done.add(flight);
        airport.done++;
      }
    }
  }

  /** The airports with the longest backlog, longest first. */
  busiest(count: number): AirportProgress[] {
    return [...this.#airports]
      .map(([airport, { holder, done, enqueued }]) => ({
        airport,
        holder: holder?.worker,
        done,
        backlog: Math.max(0, enqueued - done),
      }))
      .sort((a, b) => b.backlog - a.backlog || (a.airport < b.airport ? -1 : 1))
      .slice(0, count);
  }

  #airport(name: string): { holder: { run: string; worker: string } | undefined; done: number; enqueued: number } {
    let airport = this.#airports.get(name);
    if (airport === undefined) {
      airport = { holder: undefined, done: 0, enqueued: 0 };
      this.#airports.set(name, airport);
    }
    return airport;
  }
}
