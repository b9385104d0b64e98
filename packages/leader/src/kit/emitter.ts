/**
 * Typed events. A listener that throws, or an async one that rejects, breaks nothing: the `error` listeners are told; what one of these
 * throws, which it would be told of again, becomes a process warning.
 */
import { type Check, choice } from "@x/redlock-core/protocol";
import { type Known, listener as LISTENER } from "./checks.ts";

export type Unsubscribe = () => void;

export class Emitter<Events extends { error: unknown }> {
  readonly #listeners = new Map<keyof Events, Set<(payload: never) => void>>();
  readonly #name: Check<string>;

  constructor(names: Known<Events>) {
    this.#name = choice(Object.keys(names));
  }

  on<Name extends keyof Events>(name: Name, listener: (payload: Events[Name]) => void): Unsubscribe {
    this.#name.of("event", name);
    LISTENER.of("listener", listener);
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
