/**
 * Knowledge of one process about a resource: which lock of the process holds the resource, and which callers wait for
 * it, in the order of their arrival.
 *
 * Only the first waiter sends requests to the nodes, and only after the holder in this process has released the lock.
 * The cost of a hand-over is therefore independent of the number of waiters in this process.
 */
import type { Refusal, Vote } from "../rules/quorum.ts";

export interface Refused {
  readonly refusal: Refusal;
  readonly votes: readonly Vote[];
  /** Client ID of the lock's holder, if the holder has a name. */
  readonly client?: string | undefined;
  /** Time of the votes, by the monotonic clock. */
  readonly atMs?: number;
}

/** A lock that is held by this process. */
export interface LocalHolder {
  /**
   * Returns for how many milliseconds this lock still holds the resource unless it is extended. 0 if the lock is lost.
   */
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

  /** Reports whether a lock of this process holds the resource now. */
  holds(resource: string): boolean {
    return (this.holderOf(resource)?.remaining() ?? 0) > 0;
  }

  /** Forgets the line of a resource that is neither held nor waited for. */
  forget(resource: string): void {
    this.#lines.delete(resource);
  }
}

export class LocalLine {
  readonly resource: string;
  /**
   * Latest known reason to wait: a lock of this process held the resource, or the first caller was refused. Callers
   * whose time ends before their turn report this refusal. Undefined after the resource was acquired.
   */
  noted: Refused | undefined;
  /**
   * The collection that contains this line. Undefined once the line is forgotten, because a new line may have replaced
   * it.
   */
  #lines: LocalLines | undefined;
  #first: LocalWaiter | undefined;
  #last: LocalWaiter | undefined;
  #holder: LocalHolder | undefined;
  #freeListeners: Set<() => void> | undefined;

  /** `lines` is undefined for a line that belongs to no collection. */
  constructor(resource: string, lines?: LocalLines) {
    this.resource = resource;
    this.#lines = lines;
  }

  get holder(): LocalHolder | undefined {
    return this.#holder;
  }

  /** Whether no lock of this process holds the resource, and no caller waits for it. */
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
   * Removes a waiter from the line. The line is a linked list, because tens of thousands of waiters may leave together,
   * each from any position.
   */
  leave({ previous, next }: LocalWaiter): void {
    if (previous !== undefined) previous.next = next;
    else this.#first = next;
    if (next !== undefined) next.previous = previous;
    else this.#last = previous;
    if (previous === undefined) next?.call();
    this.#forgetIfIdle();
  }

  hold(holder: LocalHolder): void {
    this.#holder = holder;
    this.noted = undefined;
  }

  free(holder: LocalHolder): void {
    if (this.#holder !== holder) return;
    this.#holder = undefined;
    if (this.#first !== undefined) this.noted ??= { refusal: "held", votes: [] };
    const waiting = this.#freeListeners;
    this.#freeListeners = undefined;
    for (const wake of waiting ?? []) wake();
    this.#forgetIfIdle();
  }

  /** Calls `run` when the current lock is no longer held. Returns a function that cancels the call. */
  onFree(run: () => void): () => void {
    this.#freeListeners ??= new Set();
    this.#freeListeners.add(run);
    return () => {
      this.#freeListeners?.delete(run);
    };
  }

  #forgetIfIdle(): void {
    if (this.#first !== undefined || this.#holder !== undefined) return;
    this.#lines?.forget(this.resource);
    this.#lines = undefined;
  }
}

/** A caller of this process that waits in the line. */
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

  /** Leaves the line from any position. Does nothing if the caller has left already. */
  leave(): void {
    if (!this.#isIn) return;
    this.#isIn = false;
    this.line.leave(this);
  }
}
