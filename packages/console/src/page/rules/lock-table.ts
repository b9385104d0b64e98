/**
 * Pure: the locks that the nodes have reported, look by look.
 *
 * Each look reads a part of the keys. A lock stays in the table until a node was read completely, or was asked for this
 * lock, without finding the lock.
 */
import type { LockView } from "../state.ts";
import { Searches, type SearchTurns } from "./searches.ts";
import type { SeenSemaphore } from "./semaphore-table.ts";

/** A lock as stored on one node. */
interface SeenLock {
  readonly key: string;
  readonly holder: string;
  readonly pttlMs: number;
  /** -1 if the node did not read the lock's line. */
  readonly waiters: number;
  readonly claim: string;
  /** Digits that may name the lock's client. Empty for a reservation. */
  readonly client: string;
}

/** A scheduler whose state is stored on a node. */
export interface FoundScheduler {
  readonly election: string;
  /** The scheduler's `keyPrefix`. Empty if it has none. */
  readonly keyPrefix: string;
}

/** The answer of one node. */
export interface Look {
  readonly runId: string;
  readonly nowMs: number;
  readonly cursor: string;
  readonly locks: readonly SeenLock[];
  readonly elections: readonly string[];
  readonly schedulers: readonly FoundScheduler[];
  readonly semaphores: readonly SeenSemaphore[];
  /** Number of waiters by lock key, from the lines that a master of a Cluster has found. */
  readonly waited: ReadonlyMap<string, number>;
}

/** The circumstances of a query. */
export interface LockQuery {
  /** Lock keys that the query named explicitly. */
  readonly asked: readonly string[];
  /** The time of the query, in ms since the epoch. */
  readonly wallMs: number;
  /** The time of the answer, by the monotonic clock. */
  readonly nowMs: number;
}

interface Copy extends SeenLock {
  readonly round: number;
  readonly atMs: number;
}

interface Row {
  readonly copies: Map<number, Copy>;
  holder: string;
  seenAt: number;
  /** The longest time left that was seen for this holder. */
  leaseMs: number;
}

/** The position of a node's scan through its keys, and the number of finished rounds. */
interface Scan {
  runId: string;
  cursor: string;
  round: number;
}

/** The most locks that are kept. */
const MOST_LOCKS = 100_000;
/** The longest name of an election, and `keyPrefix` of a scheduler (`rules/values.ts` of `@x/leader`). */
const LONGEST_NAME = 4_096;

export class LockTable {
  readonly #quorum: number;
  readonly #prefix: string;
  readonly #rows = new Map<string, Row>();
  readonly #scans = new Map<number, Scan>();
  /** The keys of the locks that browsers search for. */
  readonly #searches: Searches<string>;

  constructor(quorum: number, prefix: string, turns: SearchTurns) {
    this.#quorum = quorum;
    this.#prefix = prefix;
    this.#searches = new Searches(turns, (key) => this.#nameOf(key));
  }

  /** The position at which each node continues its scan: pairs of run_id and cursor. */
  get cursors(): readonly string[] {
    return [...this.#scans.values()].flatMap(({ runId, cursor }) => [runId, cursor]);
  }

  /** Whether each answering node has been read completely. */
  get isComplete(): boolean {
    return this.#scans.size > 0 && [...this.#scans.values()].every(({ round }) => round > 0);
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Records the answer of a node that was also asked for the keys `asked`. */
  add(node: number, look: Look, { asked, wallMs, nowMs }: LockQuery): void {
    const scan = this.#scans.get(node) ?? { runId: look.runId, cursor: "0", round: 0 };
    // A new process has lost all keys, or has received its keys from elsewhere.
    if (scan.runId !== look.runId) this.forget(node);
    this.#scans.set(node, scan);
    for (const key of asked) this.#remove(key, node);
    for (const lock of look.locks) {
      const waiters = lock.waiters === -1 ? this.#rows.get(lock.key)?.copies.get(node)?.waiters : lock.waiters;
      this.#put(node, { ...lock, waiters: waiters ?? 0, round: scan.round, atMs: nowMs }, wallMs);
    }
    for (const [key, waiters] of look.waited) {
      const copies = this.#rows.get(key)?.copies;
      const copy = copies?.get(node);
      if (copy !== undefined) copies?.set(node, { ...copy, waiters });
    }
    for (const key of asked) if (this.#rows.get(key)?.copies.size === 0) this.#rows.delete(key);
    scan.runId = look.runId;
    scan.cursor = look.cursor;
    if (look.cursor !== "0") return;
    // A lock that was last seen in an earlier round no longer exists.
    for (const [key, { copies }] of this.#rows) {
      const copy = copies.get(node);
      if (copy !== undefined && copy.round < scan.round) this.#remove(key, node);
      if (copies.size === 0) this.#rows.delete(key);
    }
    scan.round += 1;
  }

  /** Drops everything that a node reported. Called when the node no longer answers. */
  forget(node: number): void {
    this.#scans.delete(node);
    for (const [key, row] of this.#rows) {
      row.copies.delete(node);
      if (row.copies.size === 0) this.#rows.delete(key);
    }
  }

  /** Ends a look: sorts the locks, once for all browsers. `texts`: the searches of open pages. */
  renew(texts: ReadonlySet<string>): void {
    const waited: { readonly key: string; readonly waiters: number }[] = [];
    const others: string[] = [];
    // The rows are in the order in which their holders were first seen.
    for (const [key, row] of this.#rows) {
      const waiters = waitersOf(row);
      if (waiters > 0) waited.push({ key, waiters });
      else others.push(key);
    }
    waited.sort((one, other) => other.waiters - one.waiters);
    this.#searches.renew([...waited.map(({ key }) => key), ...others], texts);
  }

  /**
   * Returns the keys of the locks whose names contain `text`. Locks with more waiters come first; with equal waiters,
   * the lock that has been held longest. Undefined if the search has to wait for a later look.
   */
  find(text: string): readonly string[] | undefined {
    return this.#searches.find(text);
  }

  /** Returns the digits that may name the client that holds the lock with this key. */
  clientOf(key: string): string {
    const row = this.#rows.get(key);
    return row === undefined ? "" : (leadingOf(row).copies[0]?.client ?? "");
  }

  /** Returns the lock with this key, as of `nowMs`. */
  viewOf(key: string, nowMs: number): LockView | undefined {
    const row = this.#rows.get(key);
    if (row === undefined || row.copies.size === 0) return undefined;
    const { holder, copies } = leadingOf(row);
    const lives = copies
      .map(({ pttlMs, atMs }) => (pttlMs < 0 ? Number.POSITIVE_INFINITY : Math.max(0, pttlMs - (nowMs - atMs))))
      .sort((a, b) => b - a);
    const isHeld = copies.length >= this.#quorum && holder !== "reserved";
    const remainingMs = lives[isHeld ? this.#quorum - 1 : 0] ?? 0;
    return {
      resource: this.#nameOf(key),
      state: isHeld ? "held" : holder === "reserved" ? "reserved" : "contended",
      owner: ownerOf(copies),
      holder,
      votes: copies.length,
      remainingMs: Number.isFinite(remainingMs) ? Math.round(remainingMs) : -1,
      leaseMs: Number.isFinite(row.leaseMs) ? Math.round(row.leaseMs) : -1,
      waiters: waitersOf(row),
      seenAt: row.seenAt,
    };
  }

  #nameOf(key: string): string {
    return key.slice(this.#prefix.length);
  }

  #put(node: number, copy: Copy, wallMs: number): void {
    if (this.#rows.size >= MOST_LOCKS && !this.#rows.has(copy.key)) return;
    const row = this.#rows.get(copy.key) ?? { copies: new Map<number, Copy>(), holder: "", seenAt: wallMs, leaseMs: 0 };
    this.#rows.set(copy.key, row);
    row.copies.set(node, copy);
    const { holder } = leadingOf(row);
    if (holder === row.holder) {
      if (copy.holder === holder) row.leaseMs = Math.max(row.leaseMs, leaseOf(copy));
      return;
    }
    row.holder = holder;
    row.leaseMs = leaseOf(copy);
    row.seenAt = wallMs;
    // Moves the row behind all locks whose holders were seen earlier.
    this.#rows.delete(copy.key);
    this.#rows.set(copy.key, row);
  }

  #remove(key: string, node: number): void {
    this.#rows.get(key)?.copies.delete(node);
  }
}

function leaseOf({ pttlMs }: Copy): number {
  return pttlMs < 0 ? Number.POSITIVE_INFINITY : pttlMs;
}

/** Returns the holder that most nodes name. */
function leadingOf({ copies }: Row): { readonly holder: string; readonly copies: readonly Copy[] } {
  const byHolder = new Map<string, Copy[]>();
  for (const copy of copies.values()) byHolder.set(copy.holder, [...(byHolder.get(copy.holder) ?? []), copy]);
  let best: readonly [string, readonly Copy[]] = ["", []];
  for (const each of byHolder) if (each[1].length > best[1].length) best = each;
  return { holder: best[0], copies: best[1] };
}

function waitersOf({ copies }: Row): number {
  return Math.max(0, ...[...copies.values()].map(({ waiters }) => waiters));
}

/** Returns the ID in the note that a leader stores with its lock. */
function ownerOf(copies: readonly Copy[]): string | undefined {
  for (const { claim } of copies) {
    if (claim === "") continue;
    try {
      const { id } = JSON.parse(claim) as { readonly id?: unknown };
      if (typeof id === "string") return id;
    } catch {
      // Not a note of a leader.
    }
  }
  return undefined;
}

/** Whether a name may belong to an election. Any client may store a lock with such a name. */
function isName(text: string): boolean {
  return text.length > 0 && text.length <= LONGEST_NAME;
}

/** Parses the reply of a node. @throws TypeError for an unexpected reply */
export function parseLook(reply: unknown): Look {
  if (!Array.isArray(reply) || reply.length !== 9) throw new TypeError("unexpected reply to a look");
  const [runId, seconds, micros, cursor, locks, elections, schedulers, semaphores, waited] =
    reply as readonly unknown[];
  return {
    runId: String(runId),
    nowMs: Number(seconds) * 1_000 + Number(micros) / 1_000,
    cursor: String(cursor),
    locks: (locks as readonly (readonly unknown[])[]).map(([key, holder, pttl, waiters, claim, client]) => ({
      key: String(key),
      holder: String(holder),
      pttlMs: Number(pttl),
      waiters: Number(waiters),
      claim: String(claim),
      client: String(client),
    })),
    elections: (elections as readonly unknown[]).map(String).filter(isName),
    schedulers: (schedulers as readonly (readonly unknown[])[])
      .map(([election, prefix]) => ({ election: String(election), keyPrefix: String(prefix).replace(/:$/, "") }))
      .filter(({ election, keyPrefix }) => isName(election) && (keyPrefix === "" || isName(keyPrefix))),
    semaphores: (semaphores as readonly (readonly unknown[])[]).map(
      ([key, used, capacity, leases, endsIn, waiters]) => ({
        key: String(key),
        used: Number(used),
        capacity: numberOf(capacity),
        leases: Number(leases),
        endsInMs: numberOf(endsIn),
        waiters: Number(waiters),
      }),
    ),
    waited: new Map(
      (waited as readonly (readonly unknown[])[]).map(([key, waiters]) => [String(key), Number(waiters)] as const),
    ),
  };
}

/** Parses a number that may be missing. */
function numberOf(text: unknown): number | undefined {
  return text === "" || !Number.isFinite(Number(text)) ? undefined : Number(text);
}
