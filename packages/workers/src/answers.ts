/** Notices that the queue's Redis has stopped answering while a worker waits for Redis without a limit. */
import type { Clock } from "@x/redlock-core";
import { messageOf, repeat, whenAborted } from "@x/redlock-core/kit";
import { UNREACHABLE_MS } from "./errors.ts";

const EVERY_MS = 1_000;

/**
 * Resolves when `ask` has had no answer for 30 s. Stops asking when the signal aborts. A refusal by Redis is an answer.
 *
 * Counts seconds instead of comparing times, because answers cannot arrive while this process is frozen.
 */
export function untilUnanswered(clock: Clock, ask: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    let unanswered = 0;
    const stopAsking = repeat(clock, EVERY_MS, async () => {
      await ask().catch((error: unknown) => {
        if (!isRefusal(error)) throw error;
      });
      unanswered = 0;
    });
    const stopCounting = repeat(clock, EVERY_MS, async () => {
      unanswered += 1;
      if (unanswered > UNREACHABLE_MS / EVERY_MS) resolve();
    });
    whenAborted(signal, () => {
      stopAsking();
      stopCounting();
    });
  });
}

/** Reports whether Redis has sent this error. Redis begins errors with a code, such as READONLY or LOADING. */
function isRefusal(error: unknown): boolean {
  return /^[A-Z]{2,} /.test(messageOf(error));
}
