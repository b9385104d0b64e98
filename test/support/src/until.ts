import { setTimeout as delay } from "node:timers/promises";

const EVERY_MS = 10;

/**
 * Checks a condition repeatedly until it is true. Rejects if the check rejects, or with the text of the condition if it
 * is not true within `timeoutMs` (60 s).
 */
export async function until(isSo: () => boolean | Promise<boolean>, timeoutMs = 60_000): Promise<void> {
  const end = new AbortController();
  const late = delay(timeoutMs, "late" as const, { signal: end.signal }).catch(() => "late" as const);
  try {
    for (;;) {
      const found = await Promise.race([late, isSo()]);
      if (found === "late") throw new Error(`not so within ${timeoutMs} ms: ${String(isSo).replaceAll(/\s+/g, " ")}`);
      if (found) return;
      await delay(EVERY_MS);
    }
  } finally {
    end.abort();
  }
}
