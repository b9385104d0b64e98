/** Decides whether BullMQ passes a signal to a processor. */

/**
 * Reports whether a processor declares no parameters. Such a processor may be a wrapper like `(...args) =>
 * processor(...args)`.
 */
export function isWrapper(processor: unknown): boolean {
  return typeof processor === "function" && processor.length === 0;
}

/**
 * Reports whether a processor receives a signal. A processor with one or two parameters receives none, so no signal is
 * created for it.
 */
export function takesSignal(processor: (...args: never) => unknown): boolean {
  return processor.length >= 3 || isWrapper(processor);
}

/**
 * Makes BullMQ pass a signal to a processor with fewer than three parameters, which may pass the signal on. Without the
 * signal, BullMQ could not notify such a processor of `cancelJob`.
 */
export function acceptSignal(worker: object): void {
  (worker as { processorAcceptsSignal: boolean }).processorAcceptsSignal = true;
}
