/**
 * What happens, told to whoever asks: as messages on `node:diagnostics_channel` (`x.redlock.acquire`, …) and as typed events of
 * one `Redlock`. Messages are built only if somebody listens. A listener of `on()` that throws breaks nothing: its error becomes a
 * process warning. What a subscriber of a channel throws is an uncaught exception: so Node has it. Contention is never reported as an
 * error.
 */
import { type Channel, channel } from "node:diagnostics_channel";
import type { LossReason, Vote } from "./errors.ts";
import type { NodeState } from "./node.ts";
import { callback, choice } from "./schema/check.ts";

export interface RedlockEvents {
  /** An acquisition ended. `waitMs` counts from the call. */
  acquire: {
    readonly resources: readonly string[];
    readonly outcome: "acquired" | "held" | "unreachable" | "cancelled";
    readonly attempts: number;
    readonly waitMs: number;
    readonly fencingToken?: number;
    readonly votes?: readonly Vote[];
  };
  /**
   * An acquisition was refused and waits. Once per call also where it waits for another of this process, before anything is asked:
   * there are no `votes` then.
   */
  wait: {
    readonly resources: readonly string[];
    readonly attempts: number;
    readonly waitMs: number;
    readonly votes: readonly Vote[];
  };
  /** One round of extension ended. `remainingMs` is the validity after it: the early warning for a loss. */
  extend: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly extended: boolean;
    readonly ms: number;
    readonly remainingMs: number;
    /** How the nodes answered, if it failed. */
    readonly votes?: readonly Vote[];
  };
  /** A lock was released, by its holder or by `close()`. `confirmed`: a quorum says that it was held until then. */
  release: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly confirmed: boolean;
    readonly heldMs: number;
  };
  /** A lock was lost while the holder believed to have it. */
  lost: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly reason: LossReason;
    readonly heldMs: number;
    /** Of the last extension, if it failed; else empty. */
    readonly votes: readonly Vote[];
  };
  /** A node changed its state, or is found in quarantine. */
  node: {
    readonly node: string;
    readonly state: NodeState | "quarantined";
    readonly error?: string;
    readonly quarantineLeftMs?: number;
  };
}

export type RedlockEventName = keyof RedlockEvents;

const NAMES: readonly RedlockEventName[] = ["acquire", "wait", "extend", "release", "lost", "node"];

const NAME = choice(NAMES);
const LISTENER = callback();

const channels = Object.fromEntries(NAMES.map((name) => [name, channel(`x.redlock.${name}`)])) as Record<
  RedlockEventName,
  Channel
>;

type Listener = (message: never) => void;

export class Events {
  readonly #listeners = new Map<RedlockEventName, Set<Listener>>();

  /** Adds a listener; returns a function that takes it out. */
  on<Name extends RedlockEventName>(name: Name, listener: (message: RedlockEvents[Name]) => void): () => void {
    NAME.of("event", name);
    LISTENER.of("listener", listener);
    const listeners = this.#listeners.get(name) ?? new Set<Listener>();
    this.#listeners.set(name, listeners);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** Whether anybody listens: spares a caller the making of what it would tell. */
  isHeard(name: RedlockEventName): boolean {
    return channels[name].hasSubscribers || (this.#listeners.get(name)?.size ?? 0) > 0;
  }

  /** Tells everybody who listens; `message` is only called if somebody does. */
  tell<Name extends RedlockEventName>(name: Name, message: () => RedlockEvents[Name]): void {
    const listeners = this.#listeners.get(name);
    const isWatched = channels[name].hasSubscribers;
    if (!isWatched && (listeners === undefined || listeners.size === 0)) return;
    const told = message();
    if (isWatched) channels[name].publish(told);
    for (const listener of listeners ?? []) {
      callQuietly(() => (listener as (message: RedlockEvents[Name]) => void)(told));
    }
  }
}

/** Calls a listener of the user's; an error of it becomes a process warning. */
export function callQuietly(listener: () => void): void {
  try {
    listener();
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : String(error), { code: "X_REDLOCK_LISTENER" });
  }
}
