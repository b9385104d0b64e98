/**
 * The leaders, and the timeline of their terms. Each look queries a bounded number of elections, so that many elections
 * cost no more than a few.
 */
import { LeaderElection, type LeaderInfo } from "@x/leader";
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { TERMS } from "./look.lua.ts";
import type { ElectionView, TermView } from "./state.ts";
import { Watched } from "./watched.ts";

/** How many elections one look queries. The next look continues with the others. */
const ASKED = 10;
/** The most elections that are shown. */
const MOST = 100;
const KEPT_TERMS = 40;
const LEASE_MS = 15_000;

interface Watching {
  readonly election: LeaderElection;
  readonly isOwn: boolean;
  readonly watched: Watched<LeaderInfo | null>;
  readonly terms: Map<number, TermView>;
}

export class Elections {
  readonly #redlock: Redlock;
  readonly #watching = new Map<string, Watching>();
  #next = 0;

  constructor(redlock: Redlock, given: readonly (string | LeaderElection)[]) {
    this.#redlock = redlock;
    for (const each of given) this.#add(each);
  }

  /** Adds the elections with these names, up to the limit. */
  found(names: Iterable<string>): void {
    for (const name of names) if (!this.#watching.has(name) && this.#watching.size < MOST) this.#add(name);
  }

  get(name: string): LeaderElection | undefined {
    return this.#watching.get(name)?.election;
  }

  get views(): readonly ElectionView[] {
    return [...this.#watching]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, { watched, terms }]) => {
        const { value: leader, error } = watched.section;
        return {
          name,
          state: error !== undefined || leader === undefined ? "unknown" : leader === null ? "gap" : "led",
          leaderlessSince: undefined,
          leaseMs: undefined,
          leader:
            leader === null || leader === undefined
              ? undefined
              : {
                  id: leader.id,
                  term: leader.term,
                  value: leader.value,
                  since: leader.acquiredAt.getTime(),
                  expiresInMs: leader.expiresInMs,
                },
          error,
          terms: [...terms.values()].toSorted((a, b) => a.term - b.term),
        };
      });
  }

  async look(): Promise<void> {
    const all = [...this.#watching.values()];
    const count = Math.min(ASKED, all.length);
    const turn = [...all.slice(this.#next), ...all].slice(0, count);
    this.#next = all.length === 0 ? 0 : (this.#next + count) % all.length;
    await Promise.all(turn.map(({ watched }) => watched.look()));
  }

  async close(): Promise<void> {
    const own = [...this.#watching.values()].filter(({ isOwn }) => isOwn);
    await Promise.all(own.map(({ election }) => election.stop({ drainTimeout: 0 })));
  }

  #add(given: string | LeaderElection): void {
    const isOwn = typeof given === "string";
    const election = isOwn ? this.#open(given) : given;
    const terms = new Map<number, TermView>();
    let isFirst = true;
    const watched = new Watched(protocolOf(this.#redlock).clock, async () => {
      const leader = await election.leader();
      const isNew = isFirst || (leader !== null && !terms.has(leader.term));
      const history = isNew ? await this.#history(election.name) : [];
      isFirst = false;
      this.#note(terms, leader, history);
      return leader;
    });
    this.#watching.set(election.name, { election, isOwn, watched, terms });
  }

  /**
   * Opens an election that only observes. The election needs a lease that fits the nodes, although this process is not
   * a candidate.
   */
  #open(name: string): LeaderElection {
    const { maxTtl } = this.#redlock.options;
    return new LeaderElection(this.#redlock, { name, leaseDuration: Math.min(LEASE_MS, maxTtl) });
  }

  #note(terms: Map<number, TermView>, leader: LeaderInfo | null, history: readonly TermView[]): void {
    const now = protocolOf(this.#redlock).clock.wallMs();
    for (const [number, term] of terms)
      if (term.until === undefined && number !== leader?.term)
        terms.set(number, { ...term, until: now, end: "unknown" });
    for (const term of history) this.#keep(terms, term, leader, now);
    if (leader === null) return;
    const { id, term, acquiredAt } = leader;
    terms.set(term, {
      term,
      id,
      since: terms.get(term)?.since ?? acquiredAt.getTime(),
      until: undefined,
      end: undefined,
    });
    const oldest = [...terms.keys()].toSorted((a, b) => a - b);
    for (const number of oldest.slice(0, -KEPT_TERMS)) terms.delete(number);
  }

  /** Keeps a term. If nobody saw the term end, it ends at the beginning of the next term, or now. */
  #keep(terms: Map<number, TermView>, term: TermView, leader: LeaderInfo | null, now: number): void {
    if (!terms.has(term.term) && term.term !== leader?.term)
      terms.set(term.term, { ...term, until: term.until ?? now, end: "unknown" });
  }

  /** Returns the terms that the nodes remember. Each term ends at the beginning of the next. */
  async #history(name: string): Promise<readonly TermView[]> {
    const protocol = protocolOf(this.#redlock);
    const key = protocol.sideKey(`leader:${name}`, "terms");
    const replies = await protocol.run(TERMS, { keys: [key], args: [KEPT_TERMS] });
    const records = new Map<number, { readonly id: string; readonly since: number }>();
    for (const reply of replies) {
      if (!reply.ok || !Array.isArray(reply.value)) continue;
      for (const text of reply.value as readonly string[]) {
        const { term, id, sinceMs } = recordIn(text);
        if (typeof term === "number" && typeof id === "string" && typeof sinceMs === "number")
          records.set(term, { id, since: sinceMs });
      }
    }
    const sorted = [...records].toSorted(([a], [b]) => a - b);
    return sorted.map(([term, { id, since }], at) => ({
      term,
      id,
      since,
      until: sorted[at + 1]?.[1].since,
      end: "unknown",
    }));
  }
}

/** Parses a record from a node. Returns an empty record if the text is damaged. */
function recordIn(text: string): Readonly<Record<string, unknown>> {
  try {
    return { ...(JSON.parse(text) as Record<string, unknown>) };
  } catch {
    return {};
  }
}
