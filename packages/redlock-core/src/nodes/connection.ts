/** Shared by the adapters: the state of a node with its listeners, and the scripts that a connection has loaded. */

import { backOffMs } from "../kit/back-off.ts";
import type { Clock } from "../kit/clock.ts";
import { messageOf } from "../kit/thrown.ts";
import type { NodeScript } from "../rules/script.ts";
import { serverRefusal } from "../rules/server.ts";
import { type NodeState, plainError } from "./node.ts";

export interface NodeSettings {
  readonly nodeTimeoutMs: number;
  readonly clock: Clock;
}

/** Reasons to replace a connection that is open but silent. */
export const NO_HANDSHAKE = "no answer to the handshake";
export const NO_ANSWER = "no answer for too long";

/** Base class of the adapters: settings, loaded scripts, and a state with listeners. */
export abstract class ClientNode {
  protected readonly settings: NodeSettings;
  protected readonly scripts: LoadedScripts = new LoadedScripts();
  protected isClosed = false;
  #state: NodeState = "connecting";
  #lastError: Error | undefined;
  readonly #listeners = new Set<() => void>();

  constructor(settings: NodeSettings) {
    this.settings = settings;
  }

  get state(): NodeState {
    return this.#state;
  }

  get lastError(): Error | undefined {
    return this.#lastError;
  }

  get loadError(): Error | undefined {
    return this.scripts.loadError;
  }

  onStateChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  protected noteError(error: unknown): void {
    this.#lastError = plainError(error);
  }

  protected become(state: NodeState): void {
    if (state === this.#state) return;
    this.#state = state;
    if (state === "ready") this.#lastError = undefined;
    for (const listener of [...this.#listeners]) listener();
  }
}

/** How an adapter sends the commands that precede the first script of a connection. */
interface Preparing {
  readonly load: (source: string) => Promise<unknown>;
  /** Resolves with INFO of the section `server`. */
  readonly info: () => Promise<unknown>;
}

/**
 * Sends SCRIPT LOAD once per connection, right before the first EVALSHA on the same connection. Sending both without
 * waiting in between saves a round trip, and no later release can overtake an acquisition that waits for its script.
 *
 * INFO is sent before the first script of a connection. Its answer arrives before the script's answer, so no grant of a
 * server that must not hold locks is ever used. A server that refuses INFO is not checked.
 */
class LoadedScripts {
  #loaded = new Set<string>();
  #isAsked = false;
  #isKnown = false;
  #refusal: Error | undefined;
  #loadError: Error | undefined;

  /** Why the server has refused to load a script, if it did. */
  get loadError(): Error | undefined {
    return this.#loadError;
  }

  /** Starts again, for a new connection or after the server's script cache was flushed. */
  forget(): void {
    this.#loaded = new Set();
    this.#isAsked = false;
    this.#isKnown = false;
    this.#refusal = undefined;
  }

  /** Returns whether `load` must precede the script. Throws if the server must not hold locks. */
  needsLoading(script: NodeScript): boolean {
    if (this.#refusal !== undefined) throw this.#refusal;
    return !this.#loaded.has(script.sha1);
  }

  /** Sends what must precede the script, over each of the connections. */
  load(script: NodeScript, connections: readonly Preparing[]): void {
    this.#loaded.add(script.sha1);
    for (const { info, load } of connections) {
      if (!this.#isAsked) info().then(this.#onInfo, this.#onInfo);
      load(script.source).then(this.#onLoaded, this.#onNotLoaded);
    }
    this.#isAsked = true;
  }

  /** Returns the answer of a script. Rejects if the server turned out to be one that must not hold locks. */
  checked(answer: Promise<unknown>): Promise<unknown> {
    if (this.#isKnown) return answer;
    return answer.then((reply) => {
      if (this.#refusal !== undefined) throw this.#refusal;
      return reply;
    });
  }

  /** Runs a script. `send` sends one command; commands must reach the server in the order of the calls. */
  async run(
    send: (command: string[]) => Promise<unknown>,
    script: NodeScript,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<unknown> {
    if (this.needsLoading(script)) {
      this.load(script, [{ load: (source) => send(["SCRIPT", "LOAD", source]), info: () => send(["INFO", "server"]) }]);
    }
    try {
      return await this.checked(send(["EVALSHA", script.sha1, String(keys.length), ...keys, ...args]));
    } catch (error) {
      this.forgetIfMissing(error);
      throw error;
    }
  }

  /**
   * Forgets the loaded scripts if the server's script cache was flushed, so that the next request loads its script
   * again.
   */
  forgetIfMissing(error: unknown): void {
    if (error instanceof Error && error.message.startsWith("NOSCRIPT")) this.forget();
  }

  readonly #onInfo = (answer: unknown): void => {
    const reason = typeof answer === "string" ? serverRefusal(answer) : undefined;
    if (reason !== undefined) this.#refusal = new Error(reason);
    this.#isKnown = true;
  };

  readonly #onLoaded = (): void => {
    this.#loadError = undefined;
  };

  readonly #onNotLoaded = (error: unknown): void => {
    this.forget();
    this.#loadError = new Error(`SCRIPT_REFUSED the server has not loaded a script of locks: ${messageOf(error)}`);
  };
}

/**
 * Throws if the client has selected another database since the `Redlock` was created. Locks in two different databases
 * do not exclude each other.
 */
export function checkDatabase(ours: number, clients: number): void {
  if (clients === ours) return;
  throw new Error(
    `its client selected database ${clients}, and this Redlock is in ${ours}: name the database in the client's options, or make another Redlock after select()`,
  );
}

/**
 * Returns the pause before the next connection attempt, which grows from 50 ms to a second. A node that has recovered
 * is soon used again, and a dead node does not receive a flood of attempts.
 */
export function reconnectDelayMs(failures: number): number {
  return backOffMs({ failures: failures + 1, delayMs: 50, maxDelayMs: 1_000 });
}

/**
 * Returns the value in an answer to CONFIG GET. The answer is a list of a name and its value or, in version 3 of the
 * Redis protocol, an object.
 */
export function settingOf(answer: unknown, name: string): string | undefined {
  const value = Array.isArray(answer)
    ? (answer[1] as unknown)
    : (answer as Readonly<Record<string, unknown>> | undefined)?.[name];
  return typeof value === "string" ? value : undefined;
}
