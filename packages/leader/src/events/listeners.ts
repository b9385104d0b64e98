/**
 * The listeners that users add to an election or a scheduler.
 *
 * A failure that reaches neither a listener nor a subscriber of its channel, such as `logTo`, becomes a process
 * warning. Without the warning, a leader that cannot reach Redis and a handler that always throws would fail in
 * silence. Each object warns once for each event.
 */
import { type Emitter, messageOf } from "@x/redlock-core/kit";
import { channels, type LeaderMessages } from "../kit/diagnostics.ts";
import type { Unsubscribe } from "./events.ts";

/** A failure in the words of its warning. */
export interface Failure {
  readonly text: string;
  readonly error: unknown;
  /** Whether the error is from code of the user, whose stack then helps. */
  readonly hasStack?: boolean;
}

interface ListenersParts<Events extends object> {
  readonly events: Emitter<Events>;
  /** The object, as warnings name it: `election "billing"`. */
  readonly subject: string;
  /** Describes the payload of each event that reports a failure. */
  readonly failures: { readonly [Name in keyof Events]?: (payload: Events[Name]) => Failure };
}

export class Listeners<Events extends object> {
  readonly #events: Emitter<Events>;
  readonly #counts = new Map<keyof Events, number>();

  constructor({ events, subject, failures }: ListenersParts<Events>) {
    this.#events = events;
    for (const name of Object.keys(failures) as (keyof Events & string)[]) {
      const describe = failures[name];
      if (describe === undefined) continue;
      const unsubscribe = events.on(name, (payload) => {
        if ((this.#counts.get(name) ?? 0) > 0 || channels.isHeard(name as keyof LeaderMessages)) return;
        unsubscribe();
        warnOf(subject, name, describe(payload));
      });
    }
  }

  /** Adds a listener of the user. Returns a function that removes the listener. */
  on<Name extends keyof Events>(name: Name, listener: (payload: Events[Name]) => unknown): Unsubscribe {
    const unsubscribe = this.#events.on(name, listener);
    this.#count(name, 1);
    let isListening = true;
    return () => {
      if (isListening) this.#count(name, -1);
      isListening = false;
      unsubscribe();
    };
  }

  #count(name: keyof Events, change: number): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + change);
  }
}

/** The most characters of an error's message, and of its stack, in a warning. */
const [LONGEST_MESSAGE, LONGEST_STACK] = [500, 4_000];

function warnOf(subject: string, event: string, { text, error, hasStack }: Failure): void {
  const detail = hasStack === true && error instanceof Error ? error.stack?.slice(0, LONGEST_STACK) : undefined;
  process.emitWarning(
    `${subject}: ${text}: ${messageOf(error).slice(0, LONGEST_MESSAGE)}. This warning comes once: add a listener for "${event}", which reports each failure`,
    { type: "LeaderWarning", code: "X_LEADER_UNHEARD", ...(detail === undefined ? {} : { detail }) },
  );
}
