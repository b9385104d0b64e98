/**
 * A local line is what one process knows of one resource by itself. It is which of the process's locks holds it, and
 * who waits for it, first come, first served.
 *
 * Only the first of the waiters talks to the nodes, and not before the holder has gone. A hand-over therefore costs
 * the same however many wait here.
 */
import type { Refusal, Vote } from "../rules/quorum.ts";

export interface Refused {
  readonly refusal: Refusal;
  readonly votes: readonly Vote[];
  /** The digits of the client that holds the lock, if it has a name. */
  readonly client?: string | undefined;
  /** When the votes were given, by the monotonic clock. */
  readonly atMs?: number;
}

/** A lock that is held in this process. */
export interface LocalHolder {
  /** Returns for how many milliseconds it still holds the resource, unless it is extended; 0 if it holds it no more. */
  remaining(): number;
  lose(reason: "forced"): void;
}

export class LocalLines {
  readonly #lines = new Map<string, LocalLine>();

  of(resource: string): LocalLine {
    let line = this.#lines.get(resource);
    if (line === undefined) {
      line = new LocalLine(resource, this);
      this.#lines.set(resource, line);
    }
    return line;
  }

  holderOf(resource: string): LocalHolder | undefined {
    return this.#lines.get(resource)?.holder;
  }

  /** Tells whether a lock of this process has the resource now. */
  holds(resource: string): boolean {
    return (this.holderOf(resource)?.remaining() ?? 0) > 0;
  }

  /** Forgets the line of a resource, because nobody holds it or waits for it. */
  forget(resource: string): void {
    this.#lines.delete(resource);
  }
}

export class LocalLine {
  readonly resource: string;
  /**
   * What was learnt last of the resource while callers wait. It is that a lock of this process had it, or the refusal
   * of a caller that was first. Callers whose time is over before they are first are told of it.
   */
  noted: Refused | undefined;
  /** The lines among which it is found; undefined once it is forgotten, since another one may be in its place. */
  #lines: LocalLines | undefined;
  #first: LocalWaiter | undefined;
  #last: LocalWaiter | undefined;
  #holder: LocalHolder | undefined;
  #waiting: Set<() => void> | undefined;

  /** `lines` is undefined for a line that is nowhere to be found. */
  constructor(resource: string, lines?: LocalLines) {
    this.resource = resource;
    this.#lines = lines;
  }

  get holder(): LocalHolder | undefined {
    return this.#holder;
  }

  /** Whether nobody in this process holds the resource or waits for it. */
  get isIdle(): boolean {
    return this.#first === undefined && this.#holder === undefined;
  }

  enter(): LocalWaiter {
    const waiter = new LocalWaiter(this, this.#last);
    if (this.#last === undefined) this.#first = waiter;
    else this.#last.next = waiter;
    this.#last = waiter;
    return waiter;
  }

  /**
   * Takes a waiter out of the line. The line is a linked list, because tens of thousands may leave at once, each from
   * anywhere.
   */
  leave({ previous, next }: LocalWaiter): void {
    if (previous !== undefined) previous.next = next;
    else this.#first = next;
    if (next !== undefined) next.previous = previous;
    else this.#last = previous;
    if (previous === undefined) next?.call();
    this.#tidy();
  }

  hold(holder: LocalHolder): void {
    this.#holder = holder;
    this.noted = undefined;
  }

  free(holder: LocalHolder): void {
    if (this.#holder !== holder) return;
    this.#holder = undefined;
    if (this.#first !== undefined) this.noted ??= { refusal: "held", votes: [] };
    const waiting = this.#waiting;
    this.#waiting = undefined;
    for (const wake of waiting ?? []) wake();
    this.#tidy();
  }

  /** Calls `run` when the lock that is held now is not held any more. Returns a function that stops that. */
  onFree(run: () => void): () => void {
    this.#waiting ??= new Set();
    this.#waiting.add(run);
    return () => {
      this.#waiting?.delete(run);
    };
  }

  #tidy(): void {
    if (this.#first !== undefined || this.#holder !== undefined) return;
    this.#lines?.forget(this.resource);
    this.#lines = undefined;
  }
}

/** A caller of this process that stands in the line. */
export class LocalWaiter {
  readonly line: LocalLine;
  previous: LocalWaiter | undefined;
  next: LocalWaiter | undefined;
  #isIn = true;
  #called: (() => void) | undefined;

  constructor(line: LocalLine, previous: LocalWaiter | undefined) {
    this.line = line;
    this.previous = previous;
  }

  get isFirst(): boolean {
    return this.previous === undefined;
  }

  untilFirst(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isFirst) resolve();
      else this.#called = resolve;
    });
  }

  call(): void {
    this.#called?.();
  }

  /** Leaves the line, wherever in it; idempotent. */
  leave(): void {
    if (!this.#isIn) return;
    this.#isIn = false;
    this.line.leave(this);
  }
}
