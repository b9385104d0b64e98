/** The `Redlock` of a renewal thread, which a module of the user's makes. */
import type { Redlock } from "@x/redlock-core";
import { kindOf, messageOf, redlock } from "@x/redlock-core/protocol";

/** A message has so much of a URL; one with data in it may be long. */
const LONGEST_URL = 1_000;

/**
 * @throws Error, TypeError naming option, rule and URL, and what the module did instead; what it threw is the `cause`
 */
export async function loadRedlock(url: string): Promise<Redlock> {
  const rule = `renewal.worker.redlock must be the URL of a module whose default export makes a Redlock (of @x/redlock-core), got ${JSON.stringify(url.slice(0, LONGEST_URL))}`;
  let make: unknown;
  let made: unknown;
  try {
    ({ default: make } = (await import(url)) as { readonly default?: unknown });
    if (typeof make === "function") made = await make();
  } catch (error) {
    const reason = messageOf(error);
    throw new Error(`${rule}, which failed: ${reason}`, { cause: error });
  }
  if (redlock.accepts(made)) return made;
  const found = typeof make === "function" ? `made ${kindOf(made)}` : `is ${kindOf(make)}`;
  throw new TypeError(`${rule}, whose default export ${found}`);
}
