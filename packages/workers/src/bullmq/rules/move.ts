/** Pure: the errors with which a processor reports to BullMQ that it has moved its job. */

const MOVES: ReadonlySet<unknown> = new Set(["DelayedError", "RateLimitError", "WaitingChildrenError", "WaitingError"]);
/** BullMQ recognizes its `RateLimitError` by this message. */
const RATE_LIMITED = "bullmq:rateLimitExceeded";

/** Reports whether a processor that rejects with this error has already moved its job. */
export function isMove(error: unknown): boolean {
  const { name, message } = (error ?? {}) as { readonly name?: unknown; readonly message?: unknown };
  return MOVES.has(name) || message === RATE_LIMITED;
}
