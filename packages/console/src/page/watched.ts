/**
 * A query that is repeated at each look. A server that hangs never receives more than one pending query of the same
 * kind. The previous value stays, with its age.
 */
import type { Clock } from "@x/redlock-core";
import { messageOf, sleep } from "@x/redlock-core/kit";
import { LONGEST_TEXT, type PageSection } from "./state.ts";

/** How long the page waits for an answer. The query stays pending afterwards. */
const PATIENCE_MS = 2_000;
const NO_ANSWER = "no answer from Redis";

export class Watched<Value> {
  readonly #clock: Clock;
  readonly #ask: () => Promise<Value>;
  readonly #noAnswer: string;
  #value: Value | undefined;
  #error: string | undefined;
  #at: number | undefined;
  #asking: Promise<void> | undefined;

  constructor(clock: Clock, ask: () => Promise<Value>, noAnswer: string = NO_ANSWER) {
    this.#clock = clock;
    this.#ask = ask;
    this.#noAnswer = noAnswer;
  }

  get section(): PageSection<Value> {
    return { value: this.#value, error: this.#error, at: this.#at };
  }

  /**
   * Queries, unless the last query is still pending. Resolves with the answer or when the patience ends. Never rejects.
   */
  async look(): Promise<void> {
    const isOpen = this.#asking !== undefined;
    this.#asking ??= this.#askOnce();
    const patience = new AbortController();
    const late = sleep(this.#clock, isOpen ? 0 : PATIENCE_MS, patience.signal).then(
      () => "late" as const,
      () => undefined,
    );
    const outcome = await Promise.race([this.#asking, late]);
    patience.abort();
    if (outcome === "late") this.#error = this.#noAnswer;
  }

  /** Takes an answer that came with the answer to another query. */
  take(value: Value): void {
    this.#value = value;
    this.#at = this.#clock.wallMs();
    this.#error = undefined;
  }

  async #askOnce(): Promise<void> {
    try {
      // Turns a synchronous throw of `ask` into a failed query.
      this.take(await (async () => await this.#ask())());
    } catch (error) {
      this.#error = textOf(error);
    } finally {
      this.#asking = undefined;
    }
  }
}

/**
 * Settles like `asked`, or rejects when the patience ends. A client may keep a request forever while its Redis is away.
 */
export async function withPatience<Value>(
  clock: Clock,
  asked: Promise<Value>,
  noAnswer: string = NO_ANSWER,
): Promise<Value> {
  const patience = new AbortController();
  const late = sleep(clock, PATIENCE_MS, patience.signal).then(() => {
    throw new Error(noAnswer);
  });
  // Both may reject after the other has settled.
  late.catch(() => undefined);
  asked.catch(() => undefined);
  try {
    return await Promise.race([asked, late]);
  } finally {
    patience.abort();
  }
}

/** Returns the message of an error. Messages contain nodes only by their addresses. */
export function textOf(error: unknown): string {
  const text = messageOf(error);
  return text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
}
