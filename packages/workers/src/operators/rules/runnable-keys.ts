/**
 * Pure: how many slots of workers could start a job now. Adds up the pages of the function `runnable` in
 * operators.lua.ts, which only reads the front of the queue.
 */
import type { RunnablePage } from "../../scripts/operator-replies.ts";

export class RunnableKeys {
  /** Slots of each key that no job of an earlier page would take. */
  readonly #free = new Map<string, number>();
  #ready = 0;
  #started = 0;

  /** Adds the jobs of a page, which come after the jobs of the earlier pages. */
  add({ ready, keys, pins }: RunnablePage): void {
    this.#ready += ready;
    for (const { key, free, inLine } of keys) {
      if (this.#free.has(key)) continue;
      const started = Math.min(free, inLine);
      this.#started += started;
      this.#free.set(key, free - started);
    }
    for (const { pin, jobs } of pins) {
      const started = Math.min(jobs, ...pin.map((key) => this.#free.get(key) ?? 0));
      this.#started += started;
      // A job that waits for one of its keys keeps later jobs from its other keys.
      for (const key of pin) this.#free.set(key, started < jobs ? 0 : (this.#free.get(key) ?? 0) - started);
    }
  }

  get count(): number {
    return this.#ready + this.#started;
  }
}
