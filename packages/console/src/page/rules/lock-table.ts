/**
 * Pure: the locks that the nodes told of, look by look.
 *
 * Each look tells of a part of the keys. A lock stays in the table until a node was looked through as a whole, or was
 * asked for it, without finding it.
 */
import type { LockView } from "../state.ts";
import { Searches, type SearchTurns } from "./searches.ts";

/** A lock as one node has it. */
interface SeenLock {
  readonly key: string;
  readonly holder: string;
  readonly pttlMs: number;
  readonly waiters: number;
  readonly claim: string;
  /** The digits that may name its client; "" for a reservation. */
  readonly client: string;
}

/** A scheduler whose state a node has. */
export interface FoundScheduler {
  readonly election: string;
  /** Its `keyPrefix`; empty if it has none. */
  readonly keyPrefix: string;
}

/** What one node answered. */
interface Look {
  readonly runId: string;
  readonly nowMs: number;
  readonly cursor: string;
  readonly locks: readonly SeenLock[];
  readonly elections: readonly string[];
  readonly schedulers: readonly FoundScheduler[];
}

/** How a node was asked. */
export interface Asked {
  /** Lock keys that it was asked for in any case. */
  readonly asked: readonly string[];
  /** The time of the question, in ms since the epoch. */
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
}

/** The place of a node's scan of its keys, and how often it has come round. */
interface Scan {
  runId: string;
  cursor: string;
  round: number;
}

/** More are not kept. */
const MOST_LOCKS = 100_000;
/** The longest name of an election, and `keyPrefix` of a scheduler (`rules/values.ts` of `@x/leader`). */
const LONGEST_NAME = 4_096;

export class LockTable {
  readonly #quorum: number;
  readonly #prefix: string;
  readonly #rows = new Map<string, Row>();
  readonly #scans = new Map<number, Scan>();
  /** The keys of the locks that browsers look for. */
  readonly #searches: Searches<string>;

  constructor(quorum: number, prefix: string, turns: SearchTurns) {
    this.#quorum = quorum;
    this.#prefix = prefix;
    this.#searches = new Searches(turns, (key) => this.#nameOf(key));
  }

  /** The place where each node goes on: its run_id and cursor, by turns. */
  get cursors(): readonly string[] {
    return [...this.#scans.values()].flatMap(({ runId, cursor }) => [runId, cursor]);
  }

  /** Whether each node that answered was looked through as a whole. */
  get isComplete(): boolean {
    return this.#scans.size > 0 && [...this.#scans.values()].every(({ round }) => round > 0);
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Takes what the node of this place answered, which was asked for the keys `asked` besides. */
  add(node: number, look: Look, { asked, wallMs, nowMs }: Asked): void {
    const scan = this.#scans.get(node) ?? { runId: look.runId, cursor: "0", round: 0 };
    // Another process has forgotten all, or has got all of it from elsewhere.
    if (scan.runId !== look.runId) this.forget(node);
    this.#scans.set(node, scan);
    for (const key of asked) this.#remove(key, node);
    for (const lock of look.locks) this.#put(node, { ...lock, round: scan.round, atMs: nowMs }, wallMs);
    for (const key of asked) if (this.#rows.get(key)?.copies.size === 0) this.#rows.delete(key);
    scan.runId = look.runId;
    scan.cursor = look.cursor;
    if (look.cursor !== "0") return;
    // What was last seen in the round before this one is gone.
    for (const [key, { copies }] of this.#rows) {
      const copy = copies.get(node);
      if (copy !== undefined && copy.round < scan.round) this.#remove(key, node);
      if (copies.size === 0) this.#rows.delete(key);
    }
    scan.round += 1;
  }

  /** Forgets what a node told, which no longer answers. */
  forget(node: number): void {
    this.#scans.delete(node);
    for (const [key, row] of this.#rows) {
      row.copies.delete(node);
      if (row.copies.size === 0) this.#rows.delete(key);
    }
  }

  /** Ends a look: brings the locks into order, once for all browsers. `texts`: those that open pages look for. */
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
   * Returns the keys of the locks whose names contain `text`: first those with most waiters, of these first those that
   * are held for longest. Undefined if the text has to wait for a later look.
   */
  find(text: string): readonly string[] | undefined {
    return this.#searches.find(text);
  }

  /** The digits that may name the client that has the lock with this key. */
  clientOf(key: string): string {
    const row = this.#rows.get(key);
    return row === undefined ? "" : (leadingOf(row).copies[0]?.client ?? "");
  }

  /** The lock with this key, as of `nowMs`. */
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
      waiters: waitersOf(row),
      seenAt: row.seenAt,
    };
  }

  #nameOf(key: string): string {
    return key.slice(this.#prefix.length);
  }

  #put(node: number, copy: Copy, wallMs: number): void {
    if (this.#rows.size >= MOST_LOCKS && !this.#rows.has(copy.key)) return;
    const row = this.#rows.get(copy.key) ?? { copies: new Map<number, Copy>(), holder: "", seenAt: wallMs };
    this.#rows.set(copy.key, row);
    row.copies.set(node, copy);
    const { holder } = leadingOf(row);
    if (holder === row.holder) return;
    row.holder = holder;
    row.seenAt = wallMs;
    // Behind all locks whose holders were seen before.
    this.#rows.delete(copy.key);
    this.#rows.set(copy.key, row);
  }

  #remove(key: string, node: number): void {
    this.#rows.get(key)?.copies.delete(node);
  }
}

/** The holder that most nodes name. */
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

/** The id in what a leader says of itself with its lock. */
function ownerOf(copies: readonly Copy[]): string | undefined {
  for (const { claim } of copies) {
    if (claim === "") continue;
    try {
      const { id } = JSON.parse(claim) as { readonly id?: unknown };
      if (typeof id === "string") return id;
    } catch {
      // Somebody else's note.
    }
  }
  return undefined;
}

/** Locks of anybody may be named as those of an election. */
function isName(text: string): boolean {
  return text.length > 0 && text.length <= LONGEST_NAME;
}

/** Reads the reply of a node. @throws TypeError if it is not one of ours */
export function parseLook(reply: unknown): Look {
  if (!Array.isArray(reply) || reply.length !== 7) throw new TypeError("unexpected reply to a look");
  const [runId, seconds, micros, cursor, locks, elections, schedulers] = reply as readonly unknown[];
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
  };
}
