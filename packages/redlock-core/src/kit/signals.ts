/** Waits that an `AbortSignal` or a deadline can end. However a wait ends, its listener and its timer are removed. */
import type { Clock } from "./clock.ts";

/**
 * The callbacks of one signal. Any number of calls share a single listener, so that a shutdown signal that is passed to
 * fifty calls does not look like a memory leak.
 */
interface Fan {
  readonly runs: Set<() => void>;
  readonly onAborted: () => void;
}

const fans = new WeakMap<AbortSignal, Fan>();

/**
 * Calls `run` when the signal aborts. Returns a function that cancels the call. The listener is removed together with
 * the last callback.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const fan = fans.get(signal) ?? listen(signal);
  // A new function per call, so that the same `run` can be registered twice.
  const each = (): void => run();
  fan.runs.add(each);
  return () => {
    fan.runs.delete(each);
    if (fan.runs.size > 0 || fans.get(signal) !== fan) return;
    fans.delete(signal);
    signal.removeEventListener("abort", fan.onAborted);
  };
}

/** Calls `run` when `signal` aborts, or immediately if it has aborted. Returns a function that cancels the call. */
export function whenAborted(signal: AbortSignal, run: () => void): () => void {
  if (!signal.aborted) return onAbort(signal, run);
  run();
  return () => undefined;
}

function listen(signal: AbortSignal): Fan {
  const runs = new Set<() => void>();
  const fan: Fan = {
    runs,
    onAborted: () => {
      fans.delete(signal);
      for (const run of [...runs]) run();
    },
  };
  fans.set(signal, fan);
  signal.addEventListener("abort", fan.onAborted, { once: true });
  return fan;
}

export interface LinkedSignal {
  readonly signal: AbortSignal;
  abort(reason: unknown): void;
  unlink(): void;
}

/**
 * Returns a signal that aborts with the first of `sources`. Unlike a signal of `AbortSignal.any`, it leaves nothing
 * behind on a long-lived source once unlinked.
 */
export function linkSignals(...sources: readonly (AbortSignal | undefined)[]): LinkedSignal {
  const controller = new AbortController();
  const undo: (() => void)[] = [];
  for (const source of sources) {
    if (source === undefined) continue;
    undo.push(whenAborted(source, () => controller.abort(source.reason)));
  }
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    unlink: () => {
      for (const each of undo.splice(0)) each();
    },
  };
}

/**
 * Resolves after `ms`. Rejects with `signal.reason` as soon as the signal aborts. The wait does not keep the process
 * alive unless `keepAlive` is true.
 */
export function sleep(
  clock: Clock,
  ms: number,
  signal?: AbortSignal,
  { keepAlive = false }: { readonly keepAlive?: boolean } = {},
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason);
      return;
    }
    const run = (): void => {
      stopListening();
      resolve();
    };
    const cancel = clock.schedule(ms, run, { keepAlive });
    const stopListening =
      signal === undefined
        ? (): void => undefined
        : onAbort(signal, () => {
            cancel();
            reject(signal.reason);
          });
  });
}

/**
 * Runs `work` now, and again `everyMs` after each end, until the returned function is called. Failures of `work` are
 * ignored. The timer does not keep the process alive.
 */
export function repeat(clock: Clock, everyMs: number, work: () => Promise<void>): () => void {
  let cancel: () => void = () => undefined;
  let isStopped = false;
  const run = async (): Promise<void> => {
    try {
      await work();
    } catch {
      // A failure that matters must be reported by `work`.
    }
    if (!isStopped) cancel = clock.schedule(everyMs, () => void run());
  };
  void run();
  return () => {
    isStopped = true;
    cancel();
  };
}

/**
 * Settles like `promise`, or rejects with `signal.reason` when the signal aborts. A later rejection of `promise` is
 * ignored.
 */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      promise.catch(() => undefined);
      reject(signal.reason);
      return;
    }
    const stopListening = onAbort(signal, () => reject(signal.reason));
    promise.then(
      (value) => {
        stopListening();
        resolve(value);
      },
      (error: unknown) => {
        stopListening();
        reject(error);
      },
    );
  });
}

/**
 * Settles like `promise`, or rejects with `otherwise`, an error or its message, after `timeoutMs`. If the promise
 * resolves later, its value is passed to `late`.
 */
export async function inTime<Value>(
  clock: Clock,
  promise: Promise<Value>,
  options: {
    readonly timeoutMs: number;
    readonly otherwise: string | (() => Error);
    readonly late?: (value: Value) => void;
    readonly keepAlive?: boolean;
  },
): Promise<Value> {
  const { timeoutMs, otherwise, late, keepAlive = false } = options;
  let cancel: () => void = () => undefined;
  const deadline = new Promise<never>((_resolve, reject) => {
    const end = (): void => {
      reject(typeof otherwise === "string" ? new Error(otherwise) : otherwise());
      promise.then(late, () => undefined);
    };
    cancel = clock.schedule(timeoutMs, end, { keepAlive });
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    cancel();
  }
}

export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

const NO_HANDLE = (): void => undefined;
let newResolve: (value: never) => void = NO_HANDLE;
let newReject: (reason: unknown) => void = NO_HANDLE;

/**
 * The executor of all promises. `Promise` calls it synchronously, so a single function can serve all promises. A
 * closure per promise would cost memory.
 */
const noteHandles = (resolve: (value: never) => void, reject: (reason: unknown) => void): void => {
  newResolve = resolve;
  newReject = reject;
};

/** Implements `Promise.withResolvers`, which Node 20 lacks. */
export function deferred<T>(): Deferred<T> {
  const promise = new Promise<T>(noteHandles);
  const made = { promise, resolve: newResolve as (value: T) => void, reject: newReject };
  newResolve = NO_HANDLE;
  newReject = NO_HANDLE;
  return made;
}
