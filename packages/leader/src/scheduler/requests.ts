/** Requests to run a schedule once, now (`trigger`): seen on the nodes, taken by the leader that has the schedule, at most once. */
import type { Clock } from "@x/redlock-core";
import { UnknownScheduleError } from "../errors.ts";
import type { Entry } from "./entry.ts";
import { type Audience, tellSkipped } from "./report.ts";
import type { Request, TickStore } from "./store.ts";

export interface RequestsParts extends Audience {
  readonly store: TickStore;
  readonly clock: Clock;
  readonly entries: ReadonlyMap<string, Entry>;
}

/** Requests that a node may still show although a quorum has taken them out; far more than are ever made at once. */
const MOST_TAKEN = 1_000;

/** Far longer than a deployment, at whose end every leader has the schedule, and than clocks differ. */
const LONGEST_REQUEST_MS = 86_400_000;

export class Requests {
  readonly #parts: RequestsParts;
  readonly #waiting = new Map<string, Request>();
  readonly #taken = new Set<string>();
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

  /** Nodes that missed that requests were taken are told; a later leader would take them again. @throws QuorumSilentError */
  async repeat(ids: readonly string[]): Promise<void> {
    const { store, term } = this.#parts;
    const taken = ids.filter((id) => this.#taken.has(id));
    if (taken.length > 0) await store.take(term.term, taken);
  }

  /**
   * Takes the requests for schedules for which `isHere`, and those that are too old; the others are left to a leader that has the
   * schedule. Resolves with those to run, or undefined if the term is stale. @throws QuorumSilentError
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
