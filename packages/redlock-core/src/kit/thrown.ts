/** Pure: handles thrown values, which may be of any type. */

/** Returns an error unchanged. Wraps any other value in an error with its message. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown));
}

/**
 * Returns the message of a thrown value. Never throws, even for an object without a prototype, which has no `toString`.
 */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message;
  try {
    return String(thrown);
  } catch {
    return Object.prototype.toString.call(thrown);
  }
}
