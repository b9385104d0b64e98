/** Pure: what was thrown, which may be anything. */

/** Returns it as it is if it is an error, and otherwise one that says it. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown));
}

/** Returns what it says. An object without a prototype says nothing, and would throw another error. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message;
  try {
    return String(thrown);
  } catch {
    return Object.prototype.toString.call(thrown);
  }
}
