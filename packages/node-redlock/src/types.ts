/** This file has the names and shapes of node-redlock 5: clients, votes, settings and errors. */
import type { IoredisClient } from "@x/redlock-core/protocol";

/**
 * A client of ioredis 5 or 6, `Redis` or `Cluster`. Its connection is duplicated. The client itself is only used by
 * `quit()`, and while it connects.
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
 * The votes of one attempt, when all are in. A client that does not answer within `nodeTimeout` is against. A client
 * that was not asked, because the others had decided, is neither for nor against.
 */
export type ExecutionStats = {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<Client>;
  readonly votesAgainst: Map<Client, Error>;
};

export type ExecutionResult = {
  /** The votes of the attempts, one promise for each; none ever rejects. At most the last 1000 are kept. */
  attempts: readonly Promise<ExecutionStats>[];
};

/** The settings that can be given for all calls of a `Redlock`, and for one call. */
export interface Settings {
  /** How far the clocks may drift apart, as a share of the duration. Default 0.01. */
  readonly driftFactor: number;
  /** The number of attempts after the first; -1 means without end. Default 10. */
  readonly retryCount: number;
  /** The pause between attempts, in ms. A lock that is released meanwhile is taken at once. Default 200. */
  readonly retryDelay: number;
  /** The amount by which the pause may be longer or shorter, in ms. Default 100. */
  readonly retryJitter: number;
  /** The validity, in ms, below which `using` extends the lock. Default 500. */
  readonly automaticExtensionThreshold: number;
}

/** Some of the settings. What is left out, or is undefined, is as in the settings of the `Redlock`. */
export type SomeSettings = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** The settings that node-redlock does not have. They hold for the whole `Redlock`. */
export interface EngineSettings {
  /** How long a client may leave one request unanswered, in ms. Default 500. */
  readonly nodeTimeout?: number | undefined;
  /**
   * The longest duration that any caller asks for, in ms. A longer duration is a `RangeError`. Default: no such
   * protection.
   *
   * With it, and with three or more nodes, a node that restarted or lost its data casts no vote at first. It votes
   * again when every lock that it may have forgotten has ended.
   */
  readonly maxTtl?: number | undefined;
}

/**
 * Somebody else has one or more of the resources on that client, or the lock is not ours there. As in node-redlock,
 * its JSON has the message. Where a resource is a key of another type, the cause is Redis' error.
 */
export class ResourceLockedError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(undefined, options);
    this.message = message;
    this.name = "ResourceLockedError";
  }
}

/**
 * An operation found no quorum; `attempts` tells how each client voted. As in node-redlock, its JSON has the message.
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
  /** Why the signal aborted; the same error as `reason`. */
  error?: Error;
};
