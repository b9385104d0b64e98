/**
 * Typed events. A listener that throws, or an async one that rejects, breaks nothing: the `error` listeners are told; what one of these
 * throws, which it would be told of again, becomes a process warning.
 */
import { show } from "./checks.ts";
import type { Known } from "./known.ts";

export type Unsubscribe = () => void;

export class Emitter<Events extends { error: unknown }> {
  readonly #listeners = new Map<keyof Events, Set<(payload: never) => void>>();
  readonly #names: Known<Events>;

  constructor(names: Known<Events>) {
    this.#names = names;
  }

  on<Name extends keyof Events>(name: Name, listener: (payload: Events[Name]) => void): Unsubscribe {
    if (!Object.hasOwn(this.#names, name))
      throw new TypeError(`event must be one of ${Object.keys(this.#names).join(", ")}, got ${show(name)}`);
    if (typeof listener !== "function") throw new TypeError(`listener must be a function, got ${typeof listener}`);
    const own = (payload: Events[Name]): void => listener(payload);
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(own));
    return () => {
      listeners.delete(own);
    };
  }

  has(name: keyof Events): boolean {
    return (this.#listeners.get(name)?.size ?? 0) > 0;
  }

  emit<Name extends keyof Events>(name: Name, payload: Events[Name]): void {
    const onThrow = name === "error" ? warn : (error: unknown): void => this.emit("error", error);
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      callSafely(() => (listener as (payload: Events[Name]) => unknown)(payload), onThrow);
    }
  }
}

/** Calls a listener of the user's; what it throws or rejects with goes to `onThrow`. */
export function callSafely(listener: () => unknown, onThrow: (error: unknown) => void): void {
  try {
    const result = listener();
    if (result instanceof Promise) void result.catch(onThrow);
  } catch (error) {
    onThrow(error);
  }
}

function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error), { code: "X_LEADER_LISTENER" });
}
