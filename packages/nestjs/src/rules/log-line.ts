/** Pure: the text of an event in Nest's log. */

/**
 * Returns a sentence with the facts of an event, such as `leadership ended: election billing, term 5, reason resigned,
 * held 1560 ms`. The messages of errors come last.
 */
export function logLine(fields: object, message: string): string {
  const entries = Object.entries(fields).filter(([name, value]) => name !== "event" && value !== undefined);
  const errors = entries.filter(([, value]) => value instanceof Error).map(([, value]) => (value as Error).message);
  const facts = entries.filter(([, value]) => isPlain(value)).map(([name, value]) => factText(name, value));
  return [message, facts.join(", "), ...errors].filter((text) => text !== "").join(": ");
}

/** Whether a value has a short text. The nodes' votes have none. */
function isPlain(value: unknown): boolean {
  return typeof value !== "object" || value === null || (Array.isArray(value) && value.every(isPlain));
}

/** Returns the stack of the first error among the facts. */
export function stackIn(facts: object): string | undefined {
  return Object.values(facts).find((value) => value instanceof Error)?.stack;
}

/** Splits a name into words: `remainingMs: 12` becomes "remaining 12 ms". */
function factText(name: string, value: unknown): string {
  const words = name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  if (typeof value !== "number") return `${words} ${String(value)}`;
  return words.endsWith(" ms") ? `${words.slice(0, -3)} ${Math.round(value)} ms` : `${words} ${value}`;
}
