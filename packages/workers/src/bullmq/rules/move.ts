/** Pure: the errors by which a processor tells BullMQ that it has moved its job. */

const MOVES: ReadonlySet<unknown> = new Set(["DelayedError", "RateLimitError", "WaitingChildrenError", "WaitingError"]);
/** BullMQ knows its `RateLimitError` by this message. */
const RATE_LIMITED = "bullmq:rateLimitExceeded";

/** Tells whether a processor that rejects with this has moved its job already. */
export function isMove(error: unknown): boolean {
  const { name, message } = (error ?? {}) as { readonly name?: unknown; readonly message?: unknown };
  return MOVES.has(name) || message === RATE_LIMITED;
}
