/** A simulated provider of a language model: slow as real ones are, and with a limit for each tenant. */
import { setTimeout as delay } from "node:timers/promises";

export interface Prompt {
  readonly tenantId: string;
  readonly texts: readonly string[];
}

/** HTTP 429. */
export class TooManyRequests extends Error {
  override readonly name = "TooManyRequests";
  readonly retryAfterMs: number;

  constructor(tenantId: string, retryAfterMs: number) {
    super(`429: tenant ${tenantId} may call again in ${retryAfterMs} ms`);
    this.retryAfterMs = retryAfterMs;
  }
}

/** Until the first word, and for each word of the answer, in ms. */
const THINKING_MS = { least: 400, most: 900 };
const WORD_MS = 30;
/** After so many calls of a tenant, it has to leave the provider alone for a while. */
const CALLS = 12;
const RETRY_AFTER_MS = 4_000;

export class Provider {
  readonly #speed: number;
  readonly #calls = new Map<string, { count: number; limitedUntilMs: number }>();
  /** Calls that were answered with 429. */
  refused = 0;

  /** `speed`: how much faster than real providers it is. */
  constructor(speed: number) {
    this.#speed = speed;
  }

  /** Rejects with `TooManyRequests`, or with the signal's reason: then nothing more is paid for. */
  async complete({ tenantId, texts }: Prompt, signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    this.#admit(tenantId);
    const text = texts.join(" ");
    const words = Number(/(\d+) words/.exec(text)?.[1] ?? 10 * texts.length);
    const thinkingMs = THINKING_MS.least + Math.random() * (THINKING_MS.most - THINKING_MS.least);
    try {
      await delay((thinkingMs + words * WORD_MS) / this.#speed, undefined, { signal });
    } catch {
      throw signal.reason;
    }
    return `${words} words about: ${text}`;
  }

  #admit(tenantId: string): void {
    const nowMs = performance.now();
    const tenant = this.#calls.get(tenantId) ?? { count: 0, limitedUntilMs: 0 };
    this.#calls.set(tenantId, tenant);
    if (nowMs >= tenant.limitedUntilMs) {
      tenant.count += 1;
      if (tenant.count % CALLS !== 0) return;
      tenant.limitedUntilMs = nowMs + RETRY_AFTER_MS / this.#speed;
    }
    this.refused += 1;
    throw new TooManyRequests(tenantId, Math.ceil(tenant.limitedUntilMs - nowMs));
  }
}
