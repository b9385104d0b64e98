/**
 * The adapters share this file: the state of a node with its listeners, and which scripts a connection has been told.
 */

import { backOffMs } from "../kit/back-off.ts";
import type { Clock } from "../kit/clock.ts";
import type { NodeScript } from "../rules/script.ts";
import { type NodeState, plainError } from "./node.ts";

export interface NodeSettings {
  readonly nodeTimeoutMs: number;
  readonly clock: Clock;
}

/** Why a connection is replaced that is open and says nothing. */
export const NO_HANDSHAKE = "no answer to the handshake";
export const NO_ANSWER = "no answer for too long";

/** A `ClientNode` is what a node has whatever its client is: settings, scripts, and a state with its listeners. */
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

/**
 * SCRIPT LOAD goes out once per connection, before the first EVALSHA on the same connection. There is no second round
 * trip, and so nothing that a later release could overtake.
 */
class LoadedScripts {
  #loaded = new Set<string>();

  forget(): void {
    this.#loaded = new Set();
  }

  needsLoading(script: NodeScript): boolean {
    if (this.#loaded.has(script.sha1)) return false;
    this.#loaded.add(script.sha1);
    return true;
  }

  /** Runs a script by the commands that `send` sends, in their order. */
  async run(
    send: (command: string[]) => Promise<unknown>,
    script: NodeScript,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<unknown> {
    if (this.needsLoading(script)) send(["SCRIPT", "LOAD", script.source]).catch(() => this.forget());
    try {
      return await send(["EVALSHA", script.sha1, String(keys.length), ...keys, ...args]);
    } catch (error) {
      this.forgetIfMissing(error);
      throw error;
    }
  }

  /** Forgets which scripts were loaded if the server's script cache was flushed: the next request loads again. */
  forgetIfMissing(error: unknown): void {
    if (error instanceof Error && error.message.startsWith("NOSCRIPT")) this.forget();
  }
}

/**
 * Checks that the connection has the database that the client had when the `Redlock` was made. Locks in two databases
 * exclude nobody.
 */
export function checkDatabase(ours: number, clients: number): void {
  if (clients === ours) return;
  throw new Error(
    `its client selected database ${clients}, and this Redlock is in ${ours}: name the database in the client's options, or make another Redlock after select()`,
  );
}

/**
 * Returns the pause before the next connection, which grows from 50 ms to a second. A node that comes back is used
 * again soon, and a dead one is not hammered.
 */
export function reconnectDelayMs(failures: number): number {
  return backOffMs({ failures: failures + 1, delayMs: 50, maxDelayMs: 1_000 });
}

/**
 * Returns the value in an answer to CONFIG GET. The answer has names and values in turn or, by protocol version 3, is
 * an object.
 */
export function settingOf(answer: unknown, name: string): string | undefined {
  const value = Array.isArray(answer)
    ? (answer[1] as unknown)
    : (answer as Readonly<Record<string, unknown>> | undefined)?.[name];
  return typeof value === "string" ? value : undefined;
}
