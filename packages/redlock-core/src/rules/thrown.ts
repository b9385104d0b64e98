/** Pure: what was thrown, which may be anything. */

/** Returns it as it is if it is an error, and otherwise one that says it. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** Returns what it says. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
