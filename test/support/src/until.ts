import { setTimeout as delay } from "node:timers/promises";

/** Looks again and again, a moment later, until it is so. Whoever must not wait for ever gives the condition an end. */
export async function until(isSo: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
  while (!(await isSo())) await delay(everyMs);
}
