/** The running calls of `@Locked` methods in this application, and the lock of each call. */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Lock, Redlock, UsingOptions } from "@x/redlock-core";
import { InFlight, show } from "@x/redlock-core/kit";

/**
 * Lock of the innermost `@Locked` method. The kit's chain of outer calls skips calls that have ended, so code that
 * outlives its method would find there the lock of a method around it, and take that lock for its own.
 */
const locks = new AsyncLocalStorage<Lock>();

interface LockedCall {
  /** The name of the method, for error messages. */
  readonly method: string;
  /** Returns the names of the resources to lock. */
  readonly resources: () => string | readonly string[];
  readonly options: UsingOptions;
  readonly run: () => unknown;
}

/**
 * Returns the lock of the innermost `@Locked` method around the caller: for its `signal`, its `fencingToken` and
 * `assertHeld()`.
 *
 * Code that outlives its method, because no one awaited it, gets a lock that is no longer held.
 * @throws Error outside of a `@Locked` method
 */
export function currentLock(): Lock {
  const lock = locks.getStore();
  if (lock === undefined) throw new Error("currentLock() must be called inside a @Locked method");
  return lock;
}

/** Nest injects this object into the classes that have `@Locked` methods. */
export class LockedCalls {
  readonly #redlock: Redlock;
  readonly #calls = new InFlight();

  constructor(redlock: Redlock) {
    this.#redlock = redlock;
  }

  async run({ method, resources, options, run }: LockedCall): Promise<unknown> {
    this.#calls.begin();
    try {
      const names = namesOf(method, resources());
      return await this.#redlock.using(
        names,
        async (lock) => {
          const result = await locks.run(lock, run);
          if (isObservable(result)) {
            throw new TypeError(
              `${method} is @Locked: it must not return an Observable, which does its work after the release`,
            );
          }
          return result;
        },
        options,
      );
    } finally {
      this.#calls.end();
    }
  }

  get count(): number {
    return this.#calls.count;
  }

  untilNone(): Promise<void> {
    return this.#calls.untilNone();
  }
}

function namesOf(method: string, given: unknown): string | readonly string[] {
  if (typeof given === "string") return given;
  if (Array.isArray(given) && given.every((each) => typeof each === "string")) return given;
  throw new TypeError(`${method} is @Locked: its resource must be a string or an array of strings, got ${show(given)}`);
}

/** Recognizes an observable by its methods, as rxjs does, because an application may load rxjs twice. */
function isObservable(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { lift, subscribe } = value as { readonly lift?: unknown; readonly subscribe?: unknown };
  return typeof lift === "function" && typeof subscribe === "function";
}
