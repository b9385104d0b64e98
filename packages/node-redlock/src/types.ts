/** Names and shapes of node-redlock 5: clients, votes, settings and errors. */
import type { IoredisClient } from "@x/redlock-core/protocol";

/**
 * A client of ioredis 5 or 6, `Redis` or `Cluster`. The connection is duplicated. The client itself is only used by
 * `quit()`, and by a `ping()` while it is not connected and no quorum is.
 */
export interface Client extends IoredisClient {
  quit(): Promise<unknown>;
  ping(): Promise<unknown>;
  once(event: "end", listener: () => void): unknown;
  removeListener(event: "end", listener: () => void): unknown;
}

export type ClientExecutionResult =
  | { client: Client; vote: "for"; value: number }
  | { client: Client; vote: "against"; error: Error };

/**
 * The complete votes of one attempt. A client that does not answer within `nodeTimeout` votes against. A client that
 * was not asked, because the other clients had decided, is in neither list.
 */
export type ExecutionStats = {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<Client>;
  readonly votesAgainst: Map<Client, Error>;
};

export type ExecutionResult = {
  /** Votes of the attempts, one promise per attempt, which never rejects. At most the last 1000 are kept. */
  attempts: readonly Promise<ExecutionStats>[];
};

/** Settings of all calls of a `Redlock`, or of one call. */
export interface Settings {
  /** Possible drift between clocks, as a share of the duration. Default 0.01; from 0 to 0.5. */
  readonly driftFactor: number;
  /** Number of attempts after the first; -1 means no limit. Default 10. */
  readonly retryCount: number;
  /** Pause between attempts, in ms. A lock that is released during the pause is acquired immediately. Default 200. */
  readonly retryDelay: number;
  /** Largest random amount by which the pause is longer or shorter, in ms. Default 100. */
  readonly retryJitter: number;
  /**
   * Remaining validity in ms at which `using` extends the lock. Must be at least 100 ms less than the duration. Default
   * 500.
   */
  readonly automaticExtensionThreshold: number;
}

/** Some of the settings. Settings that are left out or undefined are taken from the `Redlock`. */
export type SomeSettings = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** Settings of a whole `Redlock` that node-redlock does not have. */
export interface EngineSettings {
  /** How long a client may leave a request unanswered, in ms. Default 500; at least 1. */
  readonly nodeTimeout?: number | undefined;
  /**
   * Longest duration that any caller requests, in ms. A longer duration causes a `RangeError`. Default: none, which
   * also turns quarantine off.
   *
   * With `maxTtl`, and with three or more nodes, a node that has restarted or lost its data does not vote until every
   * lock that it may have forgotten has ended.
   */
  readonly maxTtl?: number | undefined;
}

/**
 * Another holder has at least one of the resources on this client, or the client does not have the caller's lock. If a
 * resource is a key of another type, the cause is Redis' error. As in node-redlock, the error's JSON contains the
 * message.
 */
export class ResourceLockedError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(undefined, options);
    this.message = message;
    this.name = "ResourceLockedError";
  }
}

/**
 * An operation reached no quorum. `attempts` contains the vote of each client. As in node-redlock, the error's JSON
 * contains the message.
 */
export class ExecutionError extends Error {
  readonly attempts: readonly Promise<ExecutionStats>[];

  constructor(message: string, attempts: readonly Promise<ExecutionStats>[], options?: ErrorOptions) {
    super(undefined, options);
    this.message = message;
    this.name = "ExecutionError";
    this.attempts = attempts;
  }
}

export type RedlockAbortSignal = AbortSignal & {
  /** Why the signal aborted. The same error as `reason`. */
  error?: Error;
};
