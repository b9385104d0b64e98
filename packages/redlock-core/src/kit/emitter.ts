/**
 * Events for the listeners of one object, added with `on()`, and channels of `node:diagnostics_channel` for subscribers
 * in the whole process. A message is only built if it has a listener.
 *
 * A listener that throws, or an async listener that rejects, breaks nothing: its error is passed to the listeners of
 * the event `error`. If there is no such event, or a listener of `error` fails, the process emits a warning. If a
 * channel's subscriber throws, Node turns the error into an uncaught exception.
 */
import { type Channel, channel, type TracingChannel, tracingChannel } from "node:diagnostics_channel";
import { declareLine, type LogLines } from "./log.ts";
import { callQuietly, warn } from "./quietly.ts";
import { type Check, callback, choice } from "./schema/check.ts";

/** An object with every key of a type. The compiler finds a key that is left out. */
export type AllNames<Kind> = Readonly<Record<keyof Kind, unknown>>;

const LISTENER = callback();

/**
 * The channels of a package. The name of a channel is a prefix and the name of the message: `x.redlock.acquired`.
 * `lines` has the line of each message for `logTo`.
 */
export class Channels<Messages extends object> {
  readonly #channels: Readonly<Record<keyof Messages, Channel>>;

  constructor(prefix: string, lines: LogLines<Messages>) {
    for (const name in lines) declareLine(`${prefix}.${name}`, lines[name]);
    const entries = Object.keys(lines).map((name) => [name, channel(`${prefix}.${name}`)]);
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
 * Traces calls for tools that draw spans, with Node's `TracingChannel`. The name contains a colon, such as
 * `x.redlock:acquire`. The channel keeps the asynchronous context, so that a span finds its parent.
 *
 * Check `isHeard` first, and pass a bound function: a function that contains a closure allocates memory for the closure
 * even if it is not traced.
 */
export class Traced<Facts extends object> {
  readonly #channel: TracingChannel<unknown, Facts>;

  constructor(name: string) {
    this.#channel = tracingChannel<unknown, Facts>(name);
  }

  get isHeard(): boolean {
    return this.#channel.hasSubscribers;
  }

  /**
   * Runs the call and publishes its messages. All messages of the call contain the same object `facts`, to which Node
   * adds `result` or `error`.
   */
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

  /** `channels`: also receive every event. Default: none. */
  constructor(names: AllNames<Events>, channels?: Channels<Events>) {
    this.#name = choice(Object.keys(names));
    this.#error = "error" in names ? ("error" as keyof Events) : undefined;
    this.#channels = channels;
  }

  /** Adds a listener and returns a function that removes it. A listener that is added twice is called twice. */
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

  /** Reports whether an event has a listener or subscriber, so that a caller need not build a message in vain. */
  isHeard(name: keyof Events): boolean {
    return (this.#listeners.get(name)?.size ?? 0) > 0 || this.#channels?.isHeard(name) === true;
  }

  /** Builds the event with `message` and notifies all listeners. Does nothing if there are none. */
  tell<Name extends keyof Events>(name: Name, message: () => Events[Name]): void {
    if (this.isHeard(name)) this.emit(name, message());
  }

  /**
   * Notifies all listeners of an event that exists already. Listeners of `error` receive the error, subscribers of its
   * channel an object with the field `error`.
   */
  emit<Name extends keyof Events>(name: Name, payload: Events[Name]): void {
    this.#channels?.publish(name, () => (name === this.#error ? ({ error: payload } as never) : payload));
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
