/**
 * Events: what happens is published as messages on `node:diagnostics_channel` (`x.redlock.acquire`, …) and as typed
 * events of one `Redlock`.
 *
 * Messages are built only if somebody listens. Contention is never reported as an error.
 *
 * A listener of `on()` that throws breaks nothing: its error becomes a process warning. An error of a channel's
 * subscriber becomes an uncaught exception, because Node handles it so.
 */
import { type Channel, channel } from "node:diagnostics_channel";
import type { LockLossReason, Vote } from "./errors.ts";
import type { NodeState } from "./nodes/node.ts";
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
   * An acquisition was refused and waits. The event comes each time that an attempt is refused and the call waits.
   *
   * It also comes, once per call, when the call waits for another call or lock of this process. No node is asked
   * then, so `votes` is empty.
   */
  wait: {
    readonly resources: readonly string[];
    readonly attempts: number;
    readonly waitMs: number;
    readonly votes: readonly Vote[];
  };
  /** One round of extension ended. `remainingMs` is the validity after it, which is the early warning for a loss. */
  extend: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly extended: boolean;
    readonly tookMs: number;
    readonly remainingMs: number;
    /** How the nodes answered, if the extension failed. */
    readonly votes?: readonly Vote[];
  };
  /**
   * A lock was released, by its holder or by `close()`. `confirmed` is true if a quorum says that it was held until
   * then.
   */
  release: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly confirmed: boolean;
    readonly heldMs: number;
  };
  /** A lock was lost while its holder still believed in it. */
  lost: {
    readonly resources: readonly string[];
    readonly fencingToken: number;
    readonly reason: LockLossReason;
    readonly heldMs: number;
    /** How the nodes answered the last extension, if it failed; otherwise empty. */
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

  /** Adds a listener, and returns a function that removes it. */
  on<Name extends RedlockEventName>(name: Name, listener: (message: RedlockEvents[Name]) => void): () => void {
    NAME.of("event", name);
    LISTENER.of("listener", listener);
    const listeners = this.#listeners.get(name) ?? new Set<Listener>();
    this.#listeners.set(name, listeners);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** Tells whether anybody listens, which spares a caller the making of a message that nobody would get. */
  isHeard(name: RedlockEventName): boolean {
    return channels[name].hasSubscribers || (this.#listeners.get(name)?.size ?? 0) > 0;
  }

  /** Publishes a message to all listeners. `message` is only called if somebody listens. */
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

/** Calls a listener of the user's. An error of the listener becomes a process warning. */
export function callQuietly(listener: () => void): void {
  try {
    listener();
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : String(error), { code: "X_REDLOCK_LISTENER" });
  }
}
