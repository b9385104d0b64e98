/** Names and shapes of node-redlock 5: clients, votes, settings and errors. */

/** A client of ioredis 5 or 6, `Redis` or `Cluster`. Its connection is duplicated; the client itself is only used by `quit()`, and while it connects. */
export interface Client {
  readonly status: string;
  readonly options: object;
  readonly isCluster?: boolean;
  duplicate(...args: never[]): unknown;
  quit(): Promise<unknown>;
  ping(): Promise<unknown>;
  once(event: "end", listener: () => void): unknown;
  removeListener(event: "end", listener: () => void): unknown;
}

export type ClientExecutionResult =
  | { client: Client; vote: "for"; value: number }
  | { client: Client; vote: "against"; error: Error };

/**
 * The votes of one attempt, when all are in. A client that does not answer within `nodeTimeout` is against; one that was not asked,
 * because the others had decided, is neither for nor against.
 */
export type ExecutionStats = {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<Client>;
  readonly votesAgainst: Map<Client, Error>;
};

export type ExecutionResult = {
  /** One promise per attempt; none ever rejects. At most the last 1000 are kept. */
  attempts: readonly Promise<ExecutionStats>[];
};

/** What can be said for all calls of a `Redlock` and for one. */
export interface Settings {
  /** What the clocks may drift apart, as a share of the duration. Default 0.01. */
  readonly driftFactor: number;
  /** Attempts after the first; -1: without end. Default 10. */
  readonly retryCount: number;
  /** Pause between attempts in ms; a lock that is released meanwhile is taken at once. Default 200. */
  readonly retryDelay: number;
  /** The pause is longer or shorter by up to this, in ms. Default 100. */
  readonly retryJitter: number;
  /** `using` extends the lock when it is valid for less than this, in ms. Default 500. */
  readonly automaticExtensionThreshold: number;
}

/** Some of them; what is left out, also as undefined, is as in the settings of the `Redlock`. */
export type SomeSettings = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** What node-redlock does not have; the whole `Redlock` works with it. */
export interface EngineSettings {
  /** How long one request may go unanswered by a client, in ms. Default 500. */
  readonly nodeTimeout?: number | undefined;
  /**
   * The longest duration that anybody asks for, in ms. With it, of three and more nodes, one that restarted or lost its data casts no
   * vote until every lock that it may have forgotten has ended; a longer duration is a `RangeError`. Default: no such protection.
   */
  readonly maxTtl?: number | undefined;
}

/** Somebody else has one or more of the resources on that client, or the lock is not ours there. As JSON it has its message, as node-redlock's. */
export class ResourceLockedError extends Error {
  constructor(message: string) {
    super();
    this.message = message;
    this.name = "ResourceLockedError";
  }
}

/** An operation found no quorum; `attempts` tells how each client voted. As JSON it has its message, as node-redlock's. */
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
  /** Why the signal aborted; the same as `reason`. */
  error?: Error;
};
