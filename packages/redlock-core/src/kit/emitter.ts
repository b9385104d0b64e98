/**
 * Events are for the listeners of one object, by its `on()`; channels of `node:diagnostics_channel` are for whoever
 * watches the whole process. Messages are built only if somebody listens.
 *
 * A listener that throws, or an async one that rejects, breaks nothing: the listeners of the event `error` are told.
 * Where there is no such event, or one of these listeners fails, the process emits a warning. An error of a channel's
 * subscriber becomes an uncaught exception, because Node handles it so.
 */
import { type Channel, channel, type TracingChannel, tracingChannel } from "node:diagnostics_channel";
import { type Check, callback, choice } from "./schema/check.ts";
import { messageOf } from "./thrown.ts";

/** A list of every name of a kind; the compiler finds one that is left out. */
export type Known<Kind> = Readonly<Record<keyof Kind, true>>;

const LISTENER = callback();

/** The channels of a package, named by a prefix and the name of the message: `x.redlock.acquire`. */
export class Channels<Messages extends object> {
  readonly #channels: Readonly<Record<keyof Messages, Channel>>;

  constructor(prefix: string, names: Known<Messages>) {
    const entries = Object.keys(names).map((name) => [name, channel(`${prefix}.${name}`)]);
    this.#channels = Object.fromEntries(entries) as Record<keyof Messages, Channel>;
  }

  isHeard(name: keyof Messages): boolean {
    return this.#channels[name].hasSubscribers;
  }

  publish<Name extends keyof Messages>(name: Name, message: () => Messages[Name]): void {
    if (this.isHeard(name)) this.#channels[name].publish(message());
  }
}

/**
 * A call that begins and ends, for tools that draw spans: Node's `TracingChannel`, whose name has a colon, such as
 * `x.redlock:acquire`. It keeps the asynchronous context, so that a span has its parent.
 *
 * Ask `isHeard` first, and `bind` the call: a function that has a closure allocates for it, traced or not.
 */
export class Traced<Facts extends object> {
  readonly #channel: TracingChannel<unknown, Facts>;

  constructor(name: string) {
    this.#channel = tracingChannel<unknown, Facts>(name);
  }

  get isHeard(): boolean {
    return this.#channel.hasSubscribers;
  }

  /** Calls and tells of it. `facts` is the same object in all messages of the call; Node adds `result` or `error`. */
  run<Result>(facts: Facts, call: () => Promise<Result>): Promise<Result> {
    return this.#channel.tracePromise(call, facts);
  }
}

type Listener = (payload: never) => unknown;

export class Emitter<Events extends object> {
  readonly #listeners = new Map<keyof Events, Set<Listener>>();
  readonly #name: Check<string>;
  readonly #error: keyof Events | undefined;
  readonly #channels: Channels<Events> | undefined;

  /** What is told goes to `channels`, too, if they are given. */
  constructor(names: Known<Events>, channels?: Channels<Events>) {
    this.#name = choice(Object.keys(names));
    this.#error = "error" in names ? ("error" as keyof Events) : undefined;
    this.#channels = channels;
  }

  /** Adds a listener, and returns a function that removes it. A listener that is added twice is called twice. */
  on<Name extends keyof Events>(name: Name, listener: (payload: Events[Name]) => unknown): () => void {
    this.#name.of("event", name);
    LISTENER.of("listener", listener);
    const added: Listener = (payload) => listener(payload);
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(added));
    return () => {
      listeners.delete(added);
    };
  }

  /** Tells whether anybody listens, which spares a caller what a message would cost that nobody would get. */
  isHeard(name: keyof Events): boolean {
    return (this.#listeners.get(name)?.size ?? 0) > 0 || this.#channels?.isHeard(name) === true;
  }

  /** Tells all listeners; `message` is only called if there are any. */
  tell<Name extends keyof Events>(name: Name, message: () => Events[Name]): void {
    if (this.isHeard(name)) this.emit(name, message());
  }

  /** Tells all listeners what is at hand anyway. */
  emit<Name extends keyof Events>(name: Name, payload: Events[Name]): void {
    this.#channels?.publish(name, () => payload);
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      callQuietly(
        () => (listener as (payload: Events[Name]) => unknown)(payload),
        (error) => this.#failed(name, error),
      );
    }
  }

  #failed(name: keyof Events, error: unknown): void {
    if (this.#error === undefined || name === this.#error) warn(error);
    else this.emit(this.#error, error as Events[keyof Events]);
  }
}

/** Calls a function of the user's. What it throws or rejects with goes to `onError`, by default as a warning. */
export function callQuietly(call: () => unknown, onError: (error: unknown) => void = (error) => warn(error)): void {
  try {
    const result = call();
    if (result instanceof Promise) result.catch(onError);
  } catch (error) {
    onError(error);
  }
}

/** Lets the process emit a warning about a failure that nobody else would be told of. */
export function warn(error: unknown, code = "X_LISTENER"): void {
  process.emitWarning(error instanceof Error ? error : messageOf(error), { code });
}
