/**
 * Pure: limits the number of requests. A client is a page that a browser has loaded. All requests that name no page
 * share one budget, so that they do not use up the budget of the operator's page.
 */

/** Requests of one client per second, and of all clients together. */
const MOST_OF_ONE = 20;
const MOST_IN_ALL = 200;
const WINDOW_MS = 1_000;

export class Budgets {
  readonly #counts = new Map<string, number>();
  #sinceMs = Number.NEGATIVE_INFINITY;
  #total = 0;

  /** Counts a request of a client. Reports whether to answer the request. */
  take(client: string, nowMs: number): boolean {
    if (nowMs - this.#sinceMs >= WINDOW_MS) {
      this.#sinceMs = nowMs;
      this.#total = 0;
      this.#counts.clear();
    }
    const count = this.#counts.get(client) ?? 0;
    if (this.#total >= MOST_IN_ALL || count >= MOST_OF_ONE) return false;
    this.#total += 1;
    this.#counts.set(client, count + 1);
    return true;
  }
}
