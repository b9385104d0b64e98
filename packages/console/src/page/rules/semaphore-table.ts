/**
 * Pure: the semaphores and read-write locks that the nodes have reported, look by look. A look reads the shown
 * semaphores again, and takes turns with the rest.
 */
import type { SemaphoreView } from "../state.ts";

/** A semaphore as stored on one node. */
export interface SeenSemaphore {
  /** The key of its state. */
  readonly key: string;
  readonly used: number;
  readonly capacity: number | undefined;
  readonly leases: number;
  /** The time until the first lease ends, in ms. */
  readonly endsInMs: number | undefined;
  readonly waiters: number;
}

/** The name that users of the semaphore pass. */
export interface SemaphoreName {
  readonly name: string;
  readonly kind: SemaphoreView["kind"];
}

interface Parts {
  /** The number of nodes that grant a read-write lock. A single node grants a semaphore. */
  readonly quorum: number;
  /** Whether each semaphore is on one of the nodes, which may change. */
  readonly isCluster: boolean;
  /** Returns the name in the key of a state. Undefined if the key belongs to something else. */
  readonly nameOf: (key: string) => SemaphoreName | undefined;
}

interface Copy extends SeenSemaphore {
  /** When the first lease ends, by the monotonic clock. */
  readonly endsMs: number | undefined;
}

interface Row extends SemaphoreName {
  readonly copies: Map<number, Copy>;
}

/** The most semaphores that are kept. */
const MOST = 1_000;
/** The most semaphores that a look reads. */
const ASKED = 50;
const SHOWN = 25;

export class SemaphoreTable {
  readonly #parts: Parts;
  readonly #rows = new Map<string, Row>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#rows.size;
  }

  /** The keys that the next look reads. A row that is read moves to the end of the turns. */
  get asked(): readonly string[] {
    return [...new Set([...this.#sorted().slice(0, SHOWN), ...this.#rows.keys()])].slice(0, ASKED);
  }

  /** Records the answer of a node that was asked for the keys `asked`. */
  add(
    node: number,
    seen: readonly SeenSemaphore[],
    { asked, nowMs }: { asked: readonly string[]; nowMs: number },
  ): void {
    for (const key of asked) this.#rows.get(key)?.copies.delete(node);
    for (const semaphore of seen) this.#put(node, semaphore, nowMs);
    for (const key of asked) {
      const row = this.#rows.get(key);
      if (row?.copies.size === 0) this.#rows.delete(key);
    }
  }

  /** Drops everything that a node reported. Called when the node no longer answers. */
  forget(node: number): void {
    for (const [key, { copies }] of this.#rows) {
      copies.delete(node);
      if (copies.size === 0) this.#rows.delete(key);
    }
  }

  /** Returns the first rows: most waiters first, then the fullest. */
  views(nowMs: number): readonly SemaphoreView[] {
    return this.#sorted()
      .slice(0, SHOWN)
      .flatMap((key) => {
        const row = this.#rows.get(key);
        return row === undefined ? [] : this.#viewOf(row, nowMs);
      });
  }

  #put(node: number, semaphore: SeenSemaphore, nowMs: number): void {
    const { key, endsInMs } = semaphore;
    const known = this.#rows.get(key);
    const name = known ?? this.#parts.nameOf(key);
    if (name === undefined || (known === undefined && this.#rows.size >= MOST)) return;
    const row = known ?? { ...name, copies: new Map<number, Copy>() };
    if (this.#parts.isCluster) row.copies.clear();
    row.copies.set(node, { ...semaphore, endsMs: endsInMs === undefined ? undefined : nowMs + endsInMs });
    this.#rows.delete(key);
    this.#rows.set(key, row);
  }

  #sorted(): readonly string[] {
    const shares = [...this.#rows].map(([key, row]) => {
      const { used, permits = used, waiters } = this.#viewOf(row, 0);
      return { key, waiters, share: permits === 0 ? 0 : used / permits };
    });
    return shares
      .toSorted(
        (one, other) => other.waiters - one.waiters || other.share - one.share || (one.key < other.key ? -1 : 1),
      )
      .map(({ key }) => key);
  }

  #viewOf({ name, kind, copies }: Row, nowMs: number): SemaphoreView {
    const quorum = kind === "read-write lock" && copies.size >= this.#parts.quorum ? this.#parts.quorum : 1;
    /** Returns the greatest number that a quorum of nodes reaches. */
    const reached = (numbers: readonly number[]): number => numbers.toSorted((a, b) => b - a)[quorum - 1] ?? 0;
    const all = [...copies.values()];
    const used = reached(all.map((copy) => copy.used));
    const permits = all.find(({ capacity }) => capacity !== undefined)?.capacity;
    const ends = all.flatMap(({ endsMs }) => endsMs ?? []);
    return {
      name,
      kind,
      used,
      permits,
      leases: reached(all.map(({ leases }) => leases)),
      endsInMs: ends.length === 0 || used === 0 ? undefined : Math.max(0, Math.round(Math.min(...ends) - nowMs)),
      waiters: Math.max(0, ...all.map(({ waiters }) => waiters)),
    };
  }
}
