/** What BullMQ makes of a processor: whether it gets a signal. */

/** Tells whether a processor declares no parameters, so that it may be `(...args) => processor(...args)`. */
export function isWrapper(processor: unknown): boolean {
  return typeof processor === "function" && processor.length === 0;
}

/** Tells whether a processor gets a signal. One with fewer than three parameters gets none, and costs none. */
export function takesSignal(processor: (...args: never) => unknown): boolean {
  return processor.length >= 3 || isWrapper(processor);
}

/**
 * Lets a processor with fewer than three parameters get a signal, because it may pass them on. BullMQ tells such a one
 * nothing of `cancelJob`.
 */
export function acceptSignal(worker: object): void {
  (worker as { processorAcceptsSignal: boolean }).processorAcceptsSignal = true;
}
