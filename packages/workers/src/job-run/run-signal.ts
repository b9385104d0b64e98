/**
 * The signal of a run's processor. Its controller is created at the first read, because most processors never read the
 * signal, and a loss that is noticed before the processor starts may be taken back.
 */
export class RunSignal {
  /** The controller of the signal that BullMQ has created for the processor, if any. */
  readonly #bullController: AbortController | undefined;
  #controller: AbortController | undefined;
  #cancelled: { readonly reason: unknown } | undefined;

  constructor(bullController: AbortController | undefined) {
    this.#bullController = bullController;
  }

  /** Reports whether BullMQ has created this signal for the run. */
  isOfBull(signal: AbortSignal): boolean {
    return this.#bullController?.signal === signal;
  }

  /** Returns the signal. `lost` is the error if the run is lost. */
  read(lost: Error | undefined): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = this.#bullController ?? new AbortController();
      if (this.#cancelled !== undefined) this.#controller.abort(this.#cancelled.reason);
      else if (lost !== undefined) this.#controller.abort(lost);
    }
    return this.#controller.signal;
  }

  /** Aborts the signal on behalf of the user, now or at its first read. */
  cancel(reason: unknown): void {
    this.#cancelled ??= { reason };
    this.#controller?.abort(reason);
  }

  /** Aborts the signal if it was read, because the run is lost. */
  lose(error: Error): void {
    this.#controller?.abort(error);
  }
}
