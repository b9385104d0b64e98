/**
 * One thing that is looked at again and again. A Redis that hangs never has more than one question of it open, and what
 * was known before stays, with its age.
 */
import type { Clock } from "@x/redlock-core";
import { messageOf, sleep } from "@x/redlock-core/protocol";
import { LONGEST_TEXT, type Section } from "./state.ts";

/** The page does not wait longer for an answer; the question stays open. */
const PATIENCE_MS = 2_000;
const NO_ANSWER = "no answer from Redis";

export class Watched<Value> {
  readonly #clock: Clock;
  readonly #ask: () => Promise<Value>;
  #value: Value | undefined;
  #error: string | undefined;
  #at: number | undefined;
  #asking: Promise<void> | undefined;

  constructor(clock: Clock, ask: () => Promise<Value>) {
    this.#clock = clock;
    this.#ask = ask;
  }

  get section(): Section<Value> {
    return { value: this.#value, error: this.#error, at: this.#at };
  }

  /** Asks, unless the last question is still open. Resolves with the answer, or after a while; never rejects. */
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
    if (outcome === "late") this.#error = NO_ANSWER;
  }

  async #askOnce(): Promise<void> {
    try {
      // A question that throws at once is one that failed.
      this.#value = await (async () => await this.#ask())();
      this.#at = this.#clock.wallMs();
      this.#error = undefined;
    } catch (error) {
      this.#error = textOf(error);
    } finally {
      this.#asking = undefined;
    }
  }
}

/**
 * Settles as `asked` does, or rejects after a while. A client whose Redis is away may keep what it was asked for ever.
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
  // Both may fail after the other has decided.
  late.catch(() => undefined);
  asked.catch(() => undefined);
  try {
    return await Promise.race([asked, late]);
  } finally {
    patience.abort();
  }
}

/** The message of an error, which names nodes by their addresses alone. */
export function textOf(error: unknown): string {
  const text = messageOf(error);
  return text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
}
