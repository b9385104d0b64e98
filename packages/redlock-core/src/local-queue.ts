/**
 * The waiters of one process on one resource, first come first served. Only the first of them talks to the nodes, so a
 * hand-over costs the same however many wait here.
 */
export class LocalQueues {
  readonly #queues = new Map<string, Place[]>();

  /** Stands in line for the resource. */
  enter(resource: string): Place {
    const queue = this.#queues.get(resource);
    const place = new Place(this, resource, queue === undefined);
    if (queue === undefined) this.#queues.set(resource, [place]);
    else queue.push(place);
    return place;
  }

  leave(place: Place): void {
    const queue = this.#queues.get(place.resource);
    const index = queue?.indexOf(place) ?? -1;
    if (queue === undefined || index === -1) return;
    queue.splice(index, 1);
    if (queue.length === 0) this.#queues.delete(place.resource);
    else if (index === 0) queue[0]?.call();
  }
}

export class Place {
  readonly resource: string;
  readonly #queues: LocalQueues;
  #isFirst: boolean;
  #called: (() => void) | undefined;

  constructor(queues: LocalQueues, resource: string, isFirst: boolean) {
    this.#queues = queues;
    this.resource = resource;
    this.#isFirst = isFirst;
  }

  /** Everybody before has left. */
  get isFirst(): boolean {
    return this.#isFirst;
  }

  untilFirst(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#isFirst) resolve();
      else this.#called = resolve;
    });
  }

  call(): void {
    this.#isFirst = true;
    this.#called?.();
  }

  /** Leaves the line, wherever in it; idempotent. */
  leave(): void {
    this.#queues.leave(this);
  }
}
