/** What BullMQ makes of a processor: whether it gets a signal, and what its rejection means. */

/** Tells whether a processor declares no parameters, so that it may be `(...args) => processor(...args)`. */
export function isWrapper(processor: unknown): boolean {
  return typeof processor === "function" && processor.length === 0;
}

/** Tells whether a processor gets a signal. One that declares fewer parameters gets none, and costs none. */
export function takesSignal(processor: (...args: never) => unknown): boolean {
  return processor.length >= 3 || isWrapper(processor);
}

/**
 * Lets a processor get a signal that declares fewer than three parameters, and may pass them on. BullMQ tells such a
 * one nothing of `cancelJob`.
 */
export function acceptSignal(worker: object): void {
  (worker as { processorAcceptsSignal: boolean }).processorAcceptsSignal = true;
}

const MOVES: ReadonlySet<unknown> = new Set(["DelayedError", "RateLimitError", "WaitingChildrenError", "WaitingError"]);
/** BullMQ knows its `RateLimitError` by this message. */
const RATE_LIMITED = "bullmq:rateLimitExceeded";

/** Tells whether a processor that rejects with this has moved its job already. */
export function isMove(error: unknown): boolean {
  const { name, message } = (error ?? {}) as { readonly name?: unknown; readonly message?: unknown };
  return MOVES.has(name) || message === RATE_LIMITED;
}
