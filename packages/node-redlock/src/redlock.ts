import { EventEmitter } from "node:events";
import {
  AutoExtension,
  Check,
  callQuietly,
  DEFAULT_DRIFT_FACTOR,
  integer,
  kindOf,
  type LeaseEnd,
  leaseEnd,
  number,
  type RenewalPolicy,
  readClock,
  remainingMs,
  Schema,
  type ShapeOf,
  shaped,
} from "@x/redlock-core/protocol";
import {
  batchScript,
  driftMs,
  type ExtendResult,
  extendRound,
  MAX_NODES,
  type ReleaseRequest,
  resolveResources,
  startRelease,
  type Target,
} from "@x/redlock-core/steps";
import { Acquisition, isLast, NO_QUORUM, remember, startPause, untilOver } from "./acquisition.ts";
import { quitClients, type SharedEngine, sharedEngine } from "./shared-engine.ts";
import {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  type RedlockAbortSignal,
  type Settings,
  type SomeSettings,
} from "./types.ts";
import { type CountRules, VoteCount } from "./vote-count.ts";

const defaultSettings: Settings = Object.freeze({
  driftFactor: DEFAULT_DRIFT_FACTOR,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});

/**
 * This number says that the lock was made by hand and no fencing token is known. An extension of it then repairs no
 * client.
 */
const NO_FENCING_TOKEN = -1;

/** What is known of a lock and not shown. Nothing is known of a lock that was made by hand. */
interface KnownLease {
  /** The end of the lease by all clocks; `expiration` has the wall clock only. */
  readonly end: LeaseEnd;
  /** The longest duration that was asked for under the lock's value, answered or not. Its keys may live for so long. */
  readonly longestMs: number;
}

let knownOf: (lock: Lock) => KnownLease | undefined;
let setKnown: (lock: Lock, known: KnownLease) => void;

/** A lock that was acquired or extended. */
export class Lock {
  readonly redlock: Redlock;
  readonly resources: string[];
  readonly value: string;
  readonly attempts: readonly Promise<ExecutionStats>[];
  /**
   * The time until which the lock may be trusted, in ms since the epoch. It is 0 when the lock was released, or
   * replaced by an extension.
   */
  expiration: number;
  /**
   * The fencing token is strictly greater than that of every earlier grant of each of the resources (see
   * `Lock.fencingToken` of the core). It is absent if the lock was made by hand.
   */
  readonly fencingToken: number | undefined;
  #known: KnownLease | undefined;

  static {
    knownOf = (lock) => (#known in lock ? lock.#known : undefined);
    setKnown = (lock, known) => {
      if (#known in lock) lock.#known = known;
    };
  }

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: readonly Promise<ExecutionStats>[],
    expiration: number,
    fencingToken?: number,
  ) {
    this.redlock = redlock;
    this.resources = resources;
    this.value = value;
    this.attempts = attempts;
    this.expiration = expiration;
    this.fencingToken = fencingToken;
  }

  /** See `Redlock.release`. */
  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  /** See `Redlock.extend`. */
  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

export interface CustomScripts {
  readonly acquireScript?: string | ((script: string) => string) | undefined;
  readonly extendScript?: string | ((script: string) => string) | undefined;
  readonly releaseScript?: string | ((script: string) => string) | undefined;
}

interface ScriptText {
  readonly value: string;
  readonly hash: string;
}

type Routine<Result> = (signal: RedlockAbortSignal) => Promise<Result>;

/**
 * The result of a vote. After `for` or `against` another attempt may help; `never` means that a quorum says that the
 * lock is not ours.
 */
interface Voted {
  readonly decision: "for" | "against" | "never";
  readonly stats: Promise<ExecutionStats>;
}

/**
 * This is node-redlock 5's class on the engine of `@x/redlock-core`. It emits `error` for each client that failed, even
 * if a quorum was reached all the same, but not for contention. Without a listener nothing happens.
 */
export class Redlock extends EventEmitter {
  readonly clients: Set<Client>;
  readonly settings: Settings;
  /** The one script of the engine, which does all three operations. */
  readonly scripts: {
    readonly acquireScript: ScriptText;
    readonly extendScript: ScriptText;
    readonly releaseScript: ScriptText;
  };
  readonly #engineSettings: EngineSettings;
  /** The engine that was used last. */
  #engine: SharedEngine | undefined;
  readonly #onError = (error: Error): void => this.#tell(error);

  /**
   * Uses `clients`, one per independent Redis node or Cluster.
   * @throws TypeError for custom scripts, because the engine's own script is what keeps its promises.
   */
  constructor(clients: Iterable<Client>, settings: SomeSettings & EngineSettings = {}, scripts: CustomScripts = {}) {
    super();
    // Without a listener an `error` event would end the process.
    this.on("error", () => undefined);
    this.clients = clientsOf(clients);
    if (this.clients.size === 0) throw new Error("Redlock must be instantiated with at least one redis client.");
    SCRIPTS.resolve(scripts, "scripts");
    this.settings = settingsOf(settings, defaultSettings);
    this.#engineSettings = ENGINE_SETTINGS.pick(settings);
    const text = { value: batchScript.source, hash: batchScript.sha1 };
    this.scripts = { acquireScript: text, extendScript: text, releaseScript: text };
    this.#shared();
  }

  /** Runs `quit()` on all clients, and closes the connections that were opened beside them. */
  async quit(): Promise<void> {
    await quitClients([...this.clients]);
  }

  /**
   * Acquires a lock on all of the resources or none, for `duration` ms. A lock that it resolves with is valid at that
   * moment.
   *
   * It rejects with `ExecutionError` when no attempt of `settings.retryCount + 1` found a quorum.
   */
  async acquire(resources: string[], duration: number, settings?: SomeSettings): Promise<Lock> {
    const merged = settingsOf(settings, this.settings);
    checkDuration(duration, merged.driftFactor, this.#engineSettings.maxTtl);
    const acquisition = new Acquisition(this.#shared(), {
      resources: namesOf(resources),
      duration,
      settings: merged,
      onError: this.#onError,
    });
    const { grant, end, attempts } = await acquisition.run();
    const { token: value, fencingToken } = grant;
    return this.#lock(resources, { value, fencingToken, attempts, end, longestMs: duration });
  }

  /**
   * Releases the lock on all clients. It rejects with `ExecutionError` in two cases:
   * - The lock was not ours any more on a quorum. The call then rejects at once.
   * - No quorum answered. The call then rejects after the retries, at the latest when the lock has expired.
   *
   * The error may be ignored. Clients that could not be reached are released when they are back, and the lock expires
   * by itself.
   */
  async release(lock: Lock, settings?: SomeSettings): Promise<ExecutionResult> {
    LOCK.of("lock", lock);
    const merged = settingsOf(settings, this.settings);
    const end = endOf(lock, this.#shared());
    lock.expiration = 0;
    return await this.#retry(merged, end, () => this.#releaseOnce(lock));
  }

  /**
   * Extends a valid lock to `duration` ms from now, and resolves with the lock that replaces it. It never shortens
   * the lock on the clients.
   *
   * It rejects with `ExecutionError` if the lock is not valid any more, or if no quorum extended it while it was.
   */
  async extend(existing: Lock, duration: number, settings?: SomeSettings): Promise<Lock> {
    LOCK.of("existing", existing);
    const merged = settingsOf(settings, this.settings);
    checkDuration(duration, merged.driftFactor, this.#engineSettings.maxTtl);
    const shared = this.#shared();
    const { clock } = shared.engine;
    const end = endOf(existing, shared);
    if (remainingMs(end, readClock(clock)) <= 0) throw new ExecutionError("Cannot extend an already-expired lock.", []);
    let asked = readClock(clock);
    const { attempts } = await this.#retry(merged, end, async () => {
      asked = readClock(clock);
      return await this.#extendOnce(existing, { duration, end });
    });
    existing.expiration = 0;
    return this.#lock(existing.resources, {
      value: existing.value,
      fencingToken: existing.fencingToken,
      attempts,
      end: leaseEnd(asked, duration, merged.driftFactor),
      longestMs: longestDurationOf(existing, shared),
    });
  }

  /**
   * Acquires the lock, calls `routine` with a signal, and releases the lock whatever happens. The call settles as the
   * routine does: a failed release never replaces its result or its error.
   *
   * The lock is extended while the routine runs. If it is lost, the signal aborts with `signal.error` set, at the
   * latest when the validity ends.
   */
  async using<Result>(
    resources: string[],
    duration: number,
    settings: SomeSettings,
    routine?: Routine<Result>,
  ): Promise<Result>;
  async using<Result>(resources: string[], duration: number, routine: Routine<Result>): Promise<Result>;
  async using<Result>(
    resources: string[],
    duration: number,
    settingsOrRoutine: SomeSettings | Routine<Result> | undefined,
    optionalRoutine?: Routine<Result>,
  ): Promise<Result> {
    const given = typeof settingsOrRoutine === "function" ? {} : settingsOrRoutine;
    const settings = settingsOf(given, this.settings);
    const routine = optionalRoutine ?? settingsOrRoutine;
    checkDuration(duration, settings.driftFactor, this.#engineSettings.maxTtl);
    if (typeof routine !== "function") throw new TypeError("INVARIANT: routine is not a function.");
    if (settings.automaticExtensionThreshold > duration - 100) {
      throw new RangeError(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    }
    const lock = await this.acquire(resources, duration, settings);
    const controller = new AbortController();
    const signal: RedlockAbortSignal = controller.signal;
    const extension = this.#autoExtend(lock, { duration, settings }, (error) => {
      signal.error = error;
      controller.abort(error);
    });
    try {
      return await routine(signal);
    } finally {
      extension.stop();
      lock.expiration = 0;
      await this.#releaseOnce(lock);
    }
  }

  #shared(): SharedEngine {
    const settings = { ...this.#engineSettings, driftFactor: this.settings.driftFactor };
    if (this.#engine?.isUsable !== true || !this.#engine.serves(this.clients, settings)) {
      this.#engine = sharedEngine(this.clients, settings);
    }
    return this.#engine;
  }

  /** Makes the handle of a lock. Code without types may name one resource by a string. */
  #lock(
    resources: string | readonly string[],
    facts: {
      readonly value: string;
      readonly fencingToken: number | undefined;
      readonly attempts: readonly Promise<ExecutionStats>[];
      readonly end: LeaseEnd;
      readonly longestMs: number;
    },
  ): Lock {
    const { value, fencingToken, attempts, longestMs } = facts;
    const end = shownEnd(facts.end);
    const names = typeof resources === "string" ? [resources] : [...resources];
    const lock = new Lock(this, names, value, attempts, end.wallMs, fencingToken);
    setKnown(lock, { end, longestMs });
    return lock;
  }

  #autoExtend(
    lock: Lock,
    options: { readonly duration: number; readonly settings: Settings },
    onLost: (error: Error) => void,
  ): AutoExtension {
    const { clock } = this.#shared().engine;
    const { duration, settings } = options;
    let end = endOf(lock, this.#shared());
    return new AutoExtension(
      clock,
      {
        remaining: () => remainingMs(end, readClock(clock)),
        keepAlive: true,
        expiredError: () => new ExecutionError("The lock expired before it could be extended.", []),
        extend: async () => {
          const asked = readClock(clock);
          const { decision, stats } = await this.#extendOnce(lock, { duration, end });
          if (decision === "for") {
            end = leaseEnd(asked, duration, settings.driftFactor);
            const shown = shownEnd(end);
            lock.expiration = shown.wallMs;
            setKnown(lock, { end: shown, longestMs: longestDurationOf(lock, this.#shared()) });
            return { kind: "extended" };
          }
          return { kind: decision === "never" ? "lost" : "failed", error: new ExecutionError(NO_QUORUM, [stats]) };
        },
      },
      beforeEnd(settings.automaticExtensionThreshold),
      onLost,
    );
  }

  /** Repeats an operation until it succeeds, cannot succeed any more, or its retries or the lock's time are used up. */
  async #retry(settings: Settings, end: LeaseEnd, operation: () => Promise<Voted>): Promise<ExecutionResult> {
    const shared = this.#shared();
    const attempts: Promise<ExecutionStats>[] = [];
    for (let retries = 0; ; retries += 1) {
      const { decision, stats } = await operation();
      remember(attempts, stats);
      if (decision === "for") return { attempts };
      const pause = startPause(shared, settings);
      const isOver =
        isLast(shared, settings, retries) || remainingMs(end, readClock(shared.engine.clock)) <= pause.leftMs;
      if (decision === "never" || isOver) throw new ExecutionError(NO_QUORUM, attempts);
      await untilOver(pause);
      pause.dispose();
    }
  }

  #releaseOnce(lock: Lock): Promise<Voted> {
    const shared = this.#shared();
    const { engine } = shared;
    const { target, token } = requestOf(lock, shared);
    const votes = this.#countVotes(shared, target.resources.length, Number);
    const request: ReleaseRequest = {
      target,
      token,
      ttlMs: longestDurationOf(lock, shared),
      mayHoldOn: engine.everyNode,
      observe: votes.observe,
    };
    return new Promise((resolve) => {
      startRelease(engine, request, engine.clock.monotonicMs(), (isReleased) => {
        votes.whenSettled(() => {
          const isPointless = votes.refusals > engine.nodes.length - engine.quorum;
          resolve({ decision: isReleased ? "for" : isPointless ? "never" : "against", stats: votes.stats });
        });
      });
    });
  }

  async #extendOnce(lock: Lock, options: { readonly duration: number; readonly end: LeaseEnd }): Promise<Voted> {
    const shared = this.#shared();
    const request = requestOf(lock, shared);
    const votes = this.#countVotes(shared, request.target.resources.length, (value) => value === 1);
    const longestMs = Math.max(longestDurationOf(lock, shared), options.duration);
    setKnown(lock, { end: endOf(lock, shared), longestMs });
    const round = extendRound(shared.engine, {
      ...request,
      fencingToken: lock.fencingToken ?? NO_FENCING_TOKEN,
      ttlMs: options.duration,
      timeoutMs: shared.engine.options.nodeTimeout,
      end: options.end,
      hadKeyOn: 0,
      observe: votes.observe,
    });
    const result = await round.result;
    await new Promise<void>((resolve) => votes.whenSettled(resolve));
    return { decision: decisionOf(result), stats: votes.stats };
  }

  #countVotes(shared: SharedEngine, resourceCount: number, applied: CountRules["applied"]): VoteCount {
    return new VoteCount(shared, { resourceCount, applied, onError: this.#onError });
  }

  /** Emits an error. A listener that throws breaks nothing. */
  #tell(error: Error): void {
    callQuietly(() => this.emit("error", error));
  }
}

/** Tries that failed are repeated after a share of the time that is left, so that there are several before the end. */
const RETRY_SHARE = 1 / 8;
const MIN_RETRY_MS = 10;

function beforeEnd(thresholdMs: number): Pick<RenewalPolicy, "dueMs" | "retryMs"> {
  return {
    dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs - thresholdMs,
    retryMs: (startedMs, nowMs, ttlMs) => nowMs + Math.max((startedMs + ttlMs - nowMs) * RETRY_SHARE, MIN_RETRY_MS),
  };
}

function decisionOf(result: ExtendResult): Voted["decision"] {
  if (result.kind === "extended") return "for";
  return result.kind === "lost" ? "never" : "against";
}

function requestOf(lock: Lock, { engine }: SharedEngine): { readonly target: Target; readonly token: string } {
  return { target: engine.targetOf(namesOf(lock.resources)), token: lock.value };
}

/** Returns the end of the lease as `expiration` has it. */
function shownEnd(end: LeaseEnd): LeaseEnd {
  return { ...end, wallMs: Math.floor(end.wallMs) };
}

/**
 * Returns the longest duration of a lock. Nothing is known of a lock that was made by hand, so `maxTtl` counts for
 * it.
 */
function longestDurationOf(lock: Lock, { engine }: SharedEngine): number {
  return knownOf(lock)?.longestMs ?? engine.options.maxTtl;
}

/** Returns the end of a lock. `expiration` may have been set by hand, above all to 0. */
function endOf(lock: Lock, { engine }: SharedEngine): LeaseEnd {
  const known = knownOf(lock)?.end;
  if (known?.wallMs === lock.expiration) return known;
  const now = readClock(engine.clock);
  return { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
}

function namesOf(resources: readonly string[]): readonly string[] {
  return resolveResources(resources, true);
}

function checkDuration(duration: number, driftFactor: number, maxTtl: number | undefined): void {
  if (!Number.isInteger(duration)) throw new RangeError("Duration must be an integer value in milliseconds.");
  if (duration > Number.MAX_SAFE_INTEGER) {
    throw new RangeError(`Duration must be <= ${Number.MAX_SAFE_INTEGER}, got ${duration}`);
  }
  const drift = driftMs(duration, driftFactor);
  if (duration <= drift) throw new RangeError(`Duration must be > drift (${drift}), got ${duration}`);
  if (maxTtl !== undefined && duration > maxTtl) {
    throw new RangeError(`Duration must be <= maxTtl (${maxTtl}), got ${duration}`);
  }
}

const FINITE_MS = new Check<number>({
  rule: "finite (ms)",
  faultOf: (value) => {
    if (typeof value !== "number") return "type";
    return Number.isFinite(value) ? undefined : "range";
  },
});

/** Unknown names are ignored, as in node-redlock, because code that was written for it has some of other versions. */
const SETTINGS = new Schema({
  driftFactor: number({ min: 0, max: 0.5 }).optional(),
  retryCount: new Check<number>({
    rule: "a number",
    faultOf: (value) => {
      if (typeof value !== "number") return "type";
      return Number.isNaN(value) ? "range" : undefined;
    },
  }).optional(),
  retryDelay: FINITE_MS.optional(),
  retryJitter: FINITE_MS.optional(),
  automaticExtensionThreshold: FINITE_MS.optional(),
} satisfies ShapeOf<SomeSettings>);

const ENGINE_SETTINGS = new Schema({
  nodeTimeout: integer({ min: 1 }).optional(),
  maxTtl: integer({ min: 1 }).optional(),
} satisfies ShapeOf<EngineSettings>);

const SCRIPT = new Check<never>({ rule: "left out, as the engine has its own script", faultOf: () => "type" });
const SCRIPTS = new Schema({
  acquireScript: SCRIPT.optional(),
  extendScript: SCRIPT.optional(),
  releaseScript: SCRIPT.optional(),
} satisfies ShapeOf<CustomScripts>);

const LOCK = shaped<Lock>(
  "a Lock",
  ({ resources, value, expiration }) =>
    resources !== undefined && typeof value === "string" && typeof expiration === "number",
);

/** Checks an object of settings. */
export const OBJECT: Check<object> = shaped<object>(
  "an object",
  (given) => Object.prototype.toString.call(given) === "[object Object]",
);

/** Fills in the settings. What is left out, or is undefined, is as in `defaults`. */
function settingsOf(settings: SomeSettings | undefined, defaults: Settings): Settings {
  if (settings === undefined) return defaults;
  const given = SETTINGS.pick(OBJECT.of("settings", settings));
  return {
    driftFactor: given.driftFactor ?? defaults.driftFactor,
    retryCount: given.retryCount ?? defaults.retryCount,
    retryDelay: given.retryDelay ?? defaults.retryDelay,
    retryJitter: given.retryJitter ?? defaults.retryJitter,
    automaticExtensionThreshold: given.automaticExtensionThreshold ?? defaults.automaticExtensionThreshold,
  };
}

function clientsOf(given: Iterable<Client>): Set<Client> {
  let clients: Set<Client> | undefined;
  try {
    if (typeof given === "object" && given !== null) clients = new Set(given);
  } catch {
    // It is no iterable, or one that throws.
  }
  if (clients === undefined) throw new TypeError(`clients must be an iterable of clients, got ${kindOf(given)}`);
  if (clients.size > MAX_NODES) throw new RangeError(`clients must be at most ${MAX_NODES}, got ${clients.size}`);
  for (const client of clients) {
    if (typeof client !== "object" || client === null)
      throw new TypeError(`clients must be clients of ioredis, got ${kindOf(client)}`);
  }
  return clients;
}
