/**
 * Requests to run a schedule once, now (`trigger`): seen on the nodes, taken by the leader that has the schedule, at most once. What does not
 * begin before the end of its term is given back.
 */
import type { Clock } from "@x/redlock-core";
import { DAY_MS } from "@x/redlock-core/protocol";
import { UnknownScheduleError } from "../errors.ts";
import type { Entry } from "./entry.ts";
import { type Audience, tellSkipped } from "./report.ts";
import type { Request, StoredState, TickStore } from "./store.ts";

export interface RequestsParts extends Audience {
  readonly store: TickStore;
  readonly clock: Clock;
  readonly entries: ReadonlyMap<string, Entry>;
}

/** Requests that a node may still show although a quorum has taken them out; far more than are ever made at once. */
const MOST_TAKEN = 1_000;

/** Far longer than a deployment, at whose end every leader has the schedule, and than clocks differ. */
const LONGEST_REQUEST_MS = DAY_MS;

/** Longer than a request is on its way from the first node to the last. */
const LONGEST_WAY_MS = 5_000;

export class Requests {
  readonly #parts: RequestsParts;
  readonly #waiting = new Map<string, Request>();
  readonly #taken = new Set<string>();
  /** Requests that too few nodes show to be run, and since when by the monotonic clock. */
  #partial: ReadonlyMap<string, number> = new Map();
  /** Requests that were reported, since there is no such schedule here. */
  readonly #unknown = new Set<string>();

  constructor(parts: RequestsParts) {
    this.#parts = parts;
  }

  see(requests: readonly Request[]): void {
    for (const request of this.untaken(requests)) this.#waiting.set(request.id, request);
  }

  untaken(requests: readonly Request[]): readonly Request[] {
    return requests.filter(({ id }) => !this.#taken.has(id));
  }

  /**
   * Takes off the nodes what will not run: requests of which a node has missed that they were taken, here or by an earlier leader, and those
   * that the others have missed. They would run once one of those loses its state. What has come just now may be on its way to the others.
   * @throws QuorumUnreachableError
   */
  async tidy({ requests, requestIds }: StoredState): Promise<void> {
    const { store, term, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    const known = new Set([...requests.map(({ id }) => id), ...this.#waiting.keys()]);
    const partial = requestIds.filter((id) => !known.has(id));
    this.#partial = new Map(partial.map((id) => [id, this.#partial.get(id) ?? nowMs]));
    const isStray = (id: string): boolean =>
      this.#taken.has(id) || nowMs - (this.#partial.get(id) ?? nowMs) >= LONGEST_WAY_MS;
    const strays = requestIds.filter(isStray);
    if (strays.length > 0) await store.take(term.term, strays);
  }

  /**
   * Takes the requests for schedules for which `isHere`, and those that are too old; the others are left to a leader that has the
   * schedule. Resolves with those to run, or undefined if the term is stale. @throws QuorumUnreachableError
   */
  async take(isHere: (name: string) => boolean): Promise<readonly Request[] | undefined> {
    const { store, term, clock } = this.#parts;
    const eldestMs = clock.wallMs() - LONGEST_REQUEST_MS;
    this.#tellUnknown();
    const requests = [...this.#waiting.values()].filter(({ name, atMs }) => isHere(name) || atMs < eldestMs);
    if (requests.length === 0) return [];
    const ids = requests.map(({ id }) => id);
    if (!(await store.take(term.term, ids))) return undefined;
    for (const id of ids) this.#setTaken(id);
    return requests.filter((request) => {
      const isDue = isHere(request.name) && request.atMs >= eldestMs;
      if (!isDue) tellSkipped(this.#parts, request, "expired");
      return isDue;
    });
  }

  #setTaken(id: string): void {
    this.#waiting.delete(id);
    this.#unknown.delete(id);
    this.#taken.add(id);
    for (const oldest of this.#taken) if (this.#taken.size > MOST_TAKEN) this.#taken.delete(oldest);
  }

  #tellUnknown(): void {
    const { term, entries, events } = this.#parts;
    for (const { id, name } of this.#waiting.values()) {
      if (entries.has(name) || this.#unknown.has(id)) continue;
      this.#unknown.add(id);
      events.emit("error", new UnknownScheduleError(term.election, name));
    }
  }
}
