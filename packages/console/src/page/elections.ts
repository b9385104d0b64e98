/**
 * The leaders, and the timeline of their terms. Each look queries a bounded number of elections, so that many elections
 * cost no more than a few.
 */
import { LeaderElection, type LeaderInfo } from "@x/leader";
import type { Clock, Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { TERMS } from "./look.lua.ts";
import { type LastSign, leaderlessSince, stateOf, type TermFacts, termsOf } from "./rules/terms.ts";
import type { ElectionView } from "./state.ts";
import { Watched } from "./watched.ts";

/** How many elections one look queries. The next look continues with the others. */
export const ELECTIONS_A_LOOK = 10;
/** The most elections that are shown. */
const MOST = 100;
const KEPT_TERMS = 40;
const LEASE_MS = 15_000;
/** A leader repeats its record once per lease. The record then stays this long (`record/ledger.ts` of `@x/leader`). */
const RECORD_MS = 7 * 86_400_000;

interface WatchedElection {
  readonly election: LeaderElection;
  readonly isOwn: boolean;
  readonly watched: Watched<LeaderInfo | null>;
  readonly records: Map<number, TermFacts>;
  /** When the last lease of each term ends that a look has seen. */
  readonly leaseEnds: Map<number, number>;
  firstLookAt: number | undefined;
  /** The longest time left of the lease that a look has seen. */
  leaseMs: number | undefined;
  /** The newest term that the nodes have recorded, and when its leader last repeated the record. */
  lastSign: LastSign | undefined;
}

export class Elections {
  readonly #redlock: Redlock;
  readonly #clock: Clock;
  readonly #watching = new Map<string, WatchedElection>();
  #next = 0;

  constructor(redlock: Redlock, given: readonly (string | LeaderElection)[]) {
    this.#redlock = redlock;
    this.#clock = protocolOf(redlock).clock;
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
    const now = this.#clock.wallMs();
    return [...this.#watching]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, { watched, records, leaseEnds, leaseMs, lastSign, firstLookAt = now }]) => {
        const { value: leader, error } = watched.section;
        const current = leader?.term;
        const terms = termsOf({ records: [...records.values()], leaseEnds, lastSign, current, firstLookAt });
        const isKnown = leader !== undefined && error === undefined;
        return {
          name,
          state: isKnown ? stateOf(terms, leader !== null, now) : "unknown",
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
          leaderlessSince: leader === null ? leaderlessSince(terms) : undefined,
          leaseMs,
          error,
          terms,
        };
      });
  }

  async look(): Promise<void> {
    const all = [...this.#watching.values()];
    const count = Math.min(ELECTIONS_A_LOOK, all.length);
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
    const watching: WatchedElection = {
      election,
      isOwn,
      watched: new Watched(this.#clock, () => this.#lookAt(watching)),
      records: new Map(),
      leaseEnds: new Map(),
      firstLookAt: undefined,
      leaseMs: undefined,
      lastSign: undefined,
    };
    this.#watching.set(election.name, watching);
  }

  /** Asks for the leader. Reads the terms at the first look, and whenever the leader has changed. */
  async #lookAt(watching: WatchedElection): Promise<LeaderInfo | null> {
    const { election, watched, records, leaseEnds } = watching;
    const before = watched.section.value;
    const leader = await election.leader();
    const now = this.#clock.wallMs();
    // A leader that has resigned has recorded its end.
    if (before === undefined || before?.term !== leader?.term) {
      const history = await this.#history(election.name);
      for (const record of history.records) records.set(record.term, record);
      watching.lastSign = history.lastSign;
    }
    watching.firstLookAt ??= now;
    if (leader !== null) {
      const { id, term, acquiredAt, expiresInMs } = leader;
      if (!records.has(term))
        records.set(term, { term, id, sinceMs: acquiredAt.getTime(), untilMs: undefined, reason: undefined });
      leaseEnds.set(term, now + expiresInMs);
      watching.leaseMs = Math.max(watching.leaseMs ?? 0, expiresInMs);
    }
    const oldest = [...records.keys()].toSorted((a, b) => a - b).slice(0, -KEPT_TERMS);
    for (const term of oldest) records.delete(term);
    for (const term of leaseEnds.keys()) if (!records.has(term)) leaseEnds.delete(term);
    return leader;
  }

  /**
   * Opens an election that only observes. The election needs a lease that fits the nodes, although this process is not
   * a candidate.
   */
  #open(name: string): LeaderElection {
    const { maxTtl } = this.#redlock.options;
    return new LeaderElection(this.#redlock, { name, leaseDuration: Math.min(LEASE_MS, maxTtl) });
  }

  /** Returns the terms that the nodes remember, and the last sign of life of the newest term. */
  async #history(
    name: string,
  ): Promise<{ readonly records: readonly TermFacts[]; readonly lastSign: LastSign | undefined }> {
    const protocol = protocolOf(this.#redlock);
    const keys = ["terms", "leader"].map((part) => protocol.keys.sideKey(`leader:${name}`, part));
    const replies = await protocol.run(TERMS, { keys, args: [KEPT_TERMS] });
    const now = this.#clock.wallMs();
    const records = new Map<number, TermFacts>();
    let lastSign: LastSign | undefined;
    for (const reply of replies) {
      if (!reply.ok || !Array.isArray(reply.value)) continue;
      const [texts, term, pttl] = reply.value as unknown as readonly [readonly string[], string, number];
      const sign = { term: Number(term), at: now - (RECORD_MS - pttl) };
      if (
        pttl > 0 &&
        (lastSign === undefined || sign.term > lastSign.term || (sign.term === lastSign.term && sign.at > lastSign.at))
      )
        lastSign = sign;
      for (const text of texts) {
        const record = recordIn(text);
        // A node that missed the end of the term has an older record.
        if (record !== undefined && records.get(record.term)?.untilMs === undefined) records.set(record.term, record);
      }
    }
    return { records: [...records.values()], lastSign };
  }
}

/** Parses a record from a node. Returns undefined if the text is damaged. */
function recordIn(text: string): TermFacts | undefined {
  try {
    const { term, id, sinceMs, untilMs, reason } = { ...(JSON.parse(text) as Record<string, unknown>) };
    if (typeof term !== "number" || typeof id !== "string" || typeof sinceMs !== "number") return undefined;
    return {
      term,
      id,
      sinceMs,
      untilMs: typeof untilMs === "number" ? untilMs : undefined,
      reason: typeof reason === "string" ? reason : undefined,
    };
  } catch {
    return undefined;
  }
}
