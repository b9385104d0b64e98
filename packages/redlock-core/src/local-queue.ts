/**
 * The waiters of one process on one resource, first come first served. Only the first of them talks to the nodes, so a
 * hand-over costs the same however many wait here.
 */
import type { Vote } from "./errors.ts";
import type { Refusal } from "./quorum.ts";
import { Table } from "./table.ts";

/** Why an attempt was refused. */
export interface Refused {
  readonly refusal: Refusal;
  readonly votes: readonly Vote[];
}

interface Queue {
  readonly places: Place[];
  /** What the nodes told the first of them, for those whose time is over before they are first. */
  noted: Refused | undefined;
}

export class LocalQueues {
  readonly #queues = new Table<Queue>();

  /** Stands in line for the resource. */
  enter(resource: string): Place {
    const queue = this.#queues.get(resource) ?? { places: [], noted: undefined };
    this.#queues.set(resource, queue);
    const place = new Place(this, resource, queue);
    queue.places.push(place);
    return place;
  }

  leave(place: Place): void {
    const { places } = place.queue;
    const index = places.indexOf(place);
    if (index === -1) return;
    places.splice(index, 1);
    if (places.length === 0) this.#queues.delete(place.resource);
    else if (index === 0) places[0]?.call();
  }
}

export class Place {
  readonly resource: string;
  readonly queue: Queue;
  readonly #queues: LocalQueues;
  #isFirst: boolean;
  #called: (() => void) | undefined;

  constructor(queues: LocalQueues, resource: string, queue: Queue) {
    this.#queues = queues;
    this.resource = resource;
    this.queue = queue;
    this.#isFirst = queue.places.length === 0;
  }

  /** Everybody before has left. */
  get isFirst(): boolean {
    return this.#isFirst;
  }

  /** The last refusal of whoever was first. */
  get noted(): Refused | undefined {
    return this.queue.noted;
  }

  note(refused: Refused): void {
    this.queue.noted = refused;
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
