/** The freezes of a server's process. Requests that arrive while the process is frozen run when it runs again. */
import type { World } from "./world.ts";

export class Freezes {
  readonly #world: World;
  #frozenCount = 0;
  #thawedCount = 0;
  #waiting: (() => void)[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  get isFrozen(): boolean {
    return this.#frozenCount > 0;
  }

  /** Runs `request` now, or once the process runs again. */
  receive(request: () => void): void {
    if (this.isFrozen) this.#waiting.push(request);
    else request();
  }

  /** Freezes the process for `ms`. Then runs the requests, unless `isUp` returns false. */
  freeze(ms: number, isUp: () => boolean): void {
    this.#frozenCount += 1;
    const thawedBefore = this.#thawedCount;
    this.#world.at(this.#world.nowMs + ms, () => {
      if (this.#thawedCount > thawedBefore) return;
      this.#frozenCount -= 1;
      if (this.#frozenCount > 0 || !isUp()) return;
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const request of waiting) request();
    });
  }

  /** Ends all freezes, because the frozen process is gone. */
  thaw(): void {
    this.#thawedCount += 1;
    this.#frozenCount = 0;
  }

  /** Drops the requests that wait, because their process has ended. */
  dropRequests(): void {
    this.#waiting = [];
  }
}
