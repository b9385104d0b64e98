/**
 * The worker's side of the lane. The class fetches, ends and moves jobs with the lane's scripts instead of BullMQ's
 * own. The class also computes keys with the user's key function, and runs the commands of operators.
 *
 * The guarantees of the lane are described in scripts/lane.lua.ts.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock } from "@x/redlock-core/kit";
import {
  argumentsOf,
  type BullClient,
  type BullTarget,
  fetchAgainReply,
  fetchArguments,
  isDecorated,
  runScript,
  type SingleCommand,
} from "../bullmq/bullmq.ts";
import { EndBatches, sendRefusedAgain } from "../bullmq/end-batches.ts";
import { JobEnd, replaceEndArguments } from "../bullmq/job-end.ts";
import type { LaneScripts } from "../bullmq/rules/compose.ts";
import { queueKeys } from "../bullmq/rules/queue-keys.ts";
import { JobCancelledError } from "../errors.ts";
import { formatPin, parsePin } from "../rules/entity-key.ts";
import { type KeyFunction, pinOfJob } from "../rules/stored-job.ts";
import {
  bringsJob,
  type CommandReply,
  parseEnds,
  parseRefusedCommand,
  parseRepeatedFetch,
  type RepeatedFetch,
  type UnknownKeyJob,
  unwrapReply,
} from "../scripts/command-replies.ts";
import type { OperatorCommand } from "../scripts/operate.lua.ts";
import { operate } from "./operate.ts";
import { type LockInstruction, settle, TakenJob, takenJobOf, tokenToRelease } from "./taken-job.ts";

interface LaneEvents {
  /** Reports the number of jobs that a script has parked. */
  onParked(parked: number): void;
  /** Reports that a script could not judge a job or could not pass a key on. */
  onFault(fault: string): void;
  /**
   * Reports that the rate of a key makes its jobs wait until `untilMs` (ms since the epoch). Called once per `untilMs`.
   */
  onLimited(key: string, untilMs: number): void;
}

/** The part of `KeyLocks` that the lane uses. */
export interface LaneLocks {
  /** Returns a token for the lock of the next job. Empty if the script must not acquire a lock. */
  newToken(): string;
  /** Returns the lock instruction for the command that ends this job, and removes it from the job. */
  takeLockInstruction(taken: TakenJob | undefined, jobId: string): LockInstruction | undefined;
}

/** How a job is moved back to `delayed`. */
export type MoveBack =
  /** The job keeps its keys, and waits for its locks at this place in line. */
  | { readonly place: number; readonly parkedSinceMs?: number | undefined }
  /** No job of its keys starts for this many milliseconds. Afterwards this job starts first. */
  | { readonly backOffMs: number };

/**
 * Longest time for which one fetch parks batches or computes keys.
 *
 * BullMQ's loop starts its fetched jobs one at a time, each after a further fetch has returned, and does not renew
 * their locks before. With many free slots the fetches add up, so each must be short.
 */
const MAX_FETCH_MS = 10;

/** Largest number of limited keys that are remembered, so that each limit is reported once. */
const MAX_REPORTED_LIMITS = 10_000;

export class Lane {
  readonly #scripts: LaneScripts;
  readonly #keyOf: KeyFunction;
  readonly #clock: Clock;
  readonly #lockDurationMs: number;
  readonly #events: LaneEvents;
  readonly #locks: LaneLocks;
  /** Jobs taken by this worker and not yet ended, by job ID. If a lost job was taken again, the newer record. */
  readonly #takenJobs = new Map<string, TakenJob>();
  /** Extra argument of `moveToDelayed` for jobs that are being moved back, by job ID and token. */
  readonly #moveBackArguments = new Map<string, string>();
  readonly #endBatches: EndBatches<PendingEnd>;
  /** End of the limit that was last reported for each key, in ms since the epoch. */
  readonly #reportedLimits = new Map<string, number>();
  #target: BullTarget | undefined;
  #isLooping = false;
  #keyComputation: Promise<void> | undefined;

  constructor(parts: {
    readonly scripts: LaneScripts;
    readonly keyOf: KeyFunction;
    readonly clock: Clock;
    /**
     * Duration of BullMQ's job lock in ms. If a Redis Cluster refuses a command that ends or moves a job, the command
     * is sent again for this long.
     */
    readonly lockDurationMs: number;
    readonly events: LaneEvents;
    readonly locks: LaneLocks;
  }) {
    this.#scripts = parts.scripts;
    this.#keyOf = parts.keyOf;
    this.#clock = parts.clock;
    this.#lockDurationMs = parts.lockDurationMs;
    this.#events = parts.events;
    this.#locks = parts.locks;
    this.#endBatches = new EndBatches((ends) => this.#sendBatch(ends), {
      onReply: (pending, reply) => this.#onEndReply(pending, reply),
      onFailure: ({ instruction }) => settle(instruction, false),
    });
  }

  /** Routes the worker's commands that fetch, end or move a job through the lane. */
  attach(target: BullTarget): void {
    this.#target = target;
    const original = target.execCommand.bind(target);
    replaceEndArguments(target);
    target.execCommand = (client, name, args) => {
      if (args instanceof JobEnd) return this.#endJob(client, args);
      return isSingleCommand(name) ? this.#exec(client, name, args) : original(client, name, args);
    };
  }

  /**
   * Marks that BullMQ's loop does the fetching. The loop repeats a fetch that found no job in time. A manual
   * `getNextJob()` does not, so its fetch continues until there is a job or the queue has none to offer.
   */
  markLoopStarted(): void {
    this.#isLooping = true;
  }

  /** Returns the record of a job that this worker has taken and not yet ended. */
  findTakenJob(jobId: string): TakenJob | undefined {
    return this.#takenJobs.get(jobId);
  }

  /**
   * Returns the `TakenJob` for a job that is about to run. Undefined if the lane did not fetch the job.
   *
   * Without BullMQ's loop the lane forgets the record here, because a job that was fetched by hand may never be ended.
   * The caller attaches the record to the BullMQ job.
   */
  handOut(jobId: string): TakenJob | undefined {
    const taken = this.#takenJobs.get(jobId);
    if (!this.#isLooping && taken !== undefined) this.forget(taken);
    return taken;
  }

  /** Drops the record of a job that this worker ends now or may never end. */
  forget(taken: TakenJob): void {
    if (this.#takenJobs.get(taken.jobId) === taken) this.#takenJobs.delete(taken.jobId);
  }

  /**
   * Moves a job back to `delayed` without counting the attempt. `moveToDelayed` must call BullMQ's command of this name
   * for this job and token.
   */
  async moveBack(
    { jobId, token }: { readonly jobId: string; readonly token: string },
    how: MoveBack,
    moveToDelayed: () => Promise<void>,
  ): Promise<void> {
    const name = `${jobId} ${token}`;
    this.#moveBackArguments.set(name, formatMoveBack(how));
    try {
      await moveToDelayed();
    } finally {
      this.#moveBackArguments.delete(name);
    }
  }

  /** Runs one of the functions in scripts/operators.lua.ts with the rules of this worker. Resolves with its reply. */
  async operate(command: OperatorCommand, ...args: readonly (string | number)[]): Promise<unknown> {
    const script = command === "cancel" ? this.#scripts.cancel : this.#scripts.operate;
    const call = { script, nowMs: this.#nowMs(), rules: "" };
    return await operate(this.#attached(), call, command, args);
  }

  /** Runs a command of BullMQ with the lane's script: a fetch, or a move of one job. */
  async #exec(client: BullClient, command: SingleCommand, args: readonly unknown[]): Promise<unknown> {
    const script = this.#scripts.commands[command];
    const { jobId, token, prefix, lockOptions } = argumentsOf(command, args, script.numberOfKeys);
    const taken = this.#takenWithToken(jobId, token);
    if (taken !== undefined) this.forget(taken);
    const instruction = this.#locks.takeLockInstruction(taken, jobId);
    const lockToken = this.#locks.newToken();
    const moveBack = this.#moveBackArguments.get(`${jobId} ${token}`);
    const allArgs = args.concat(extraArguments(command, moveBack, lockToken));
    let sent = readClock(this.#clock);
    const run = async (): Promise<unknown> => {
      sent = readClock(this.#clock);
      return await runScript(client, script, allArgs);
    };
    try {
      // A refused fetch is not sent again: BullMQ's loop repeats it.
      const forMs = command === "moveToActive" ? 0 : this.#lockDurationMs;
      const { reply } = this.#unwrapReply(await sendRefusedAgain(this.#clock, forMs, run));
      throwIfCancelled(jobId, reply);
      const again = this.#recordReply(reply, sent, lockToken);
      if (again === undefined) return reply;
      return await this.#continueFetch(again, {
        client,
        prefix,
        lockOptions: () => lockOptions,
        isPlainFetch: command === "moveToActive",
      });
    } finally {
      settle(instruction, false);
    }
  }

  #endJob(client: BullClient, end: JobEnd): Promise<unknown> {
    const { job, jobId, token } = end.facts;
    const taken = takenJobOf(job) ?? this.#takenWithToken(jobId, token);
    if (taken !== undefined) this.forget(taken);
    const instruction = this.#locks.takeLockInstruction(taken, jobId);
    const [keys, lockToken] = [taken?.keysArgument ?? "", this.#locks.newToken()];
    return this.#endBatches.add({ client, end, instruction, keys, lockToken, sent: undefined });
  }

  /** Settles the lock of an ended job, and records the next job. Returns BullMQ's reply. */
  #onEndReply(pending: PendingEnd, raw: unknown): unknown {
    const { reply, isLockKept } = this.#unwrapReply(raw);
    const { instruction, lockToken, sent = readClock(this.#clock) } = pending;
    let next: TakenJob | undefined;
    try {
      next = parseTakenJob(reply, sent, lockToken);
    } finally {
      settle(instruction, !isLockKept, next);
    }
    throwIfCancelled(pending.end.facts.jobId, reply);
    if (next !== undefined) this.#record(next);
    const again = next === undefined ? parseRepeatedFetch(reply) : undefined;
    if (again === undefined) return reply;
    const { client, end } = pending;
    const { prefix } = end.facts;
    return this.#continueFetch(again, { client, prefix, lockOptions: () => end.lockOptions, isPlainFetch: false });
  }

  /** Sends a batch of ends in one request. Resolves with one reply for each end. */
  async #sendBatch(ends: readonly PendingEnd[]): Promise<readonly unknown[]> {
    const [first] = ends;
    if (first === undefined) return [];
    const { client } = first;
    const { prefix } = first.end.facts;
    const args = [...queueKeys(prefix), prefix, ...ends.flatMap(endArguments)];
    const run = (): Promise<unknown> => {
      const sent = readClock(this.#clock);
      for (const pending of ends) pending.sent = sent;
      return runScript(client, this.#scripts.commands.moveToFinished, args);
    };
    return parseEnds(await sendRefusedAgain(this.#clock, this.#lockDurationMs, run));
  }

  /** Returns the record of a job, unless its run is known to have another token. */
  #takenWithToken(jobId: string, token: string): TakenJob | undefined {
    const taken = this.#takenJobs.get(jobId);
    return taken?.canHaveToken(token) === true ? taken : undefined;
  }

  /** Records the job in a reply, if there is one. Returns how to repeat the fetch, if it has to be repeated. */
  #recordReply(reply: unknown, sent: Instant, lockToken: string): RepeatedFetch | undefined {
    const taken = parseTakenJob(reply, sent, lockToken);
    if (taken === undefined) return parseRepeatedFetch(reply);
    this.#record(taken);
    return undefined;
  }

  /** Continues a fetch that has found no job yet. Resolves with BullMQ's reply. */
  async #continueFetch(first: RepeatedFetch, fetch: FetchParts): Promise<unknown> {
    try {
      return await this.#fetchUntilJob(first, fetch);
    } catch (error) {
      // The command itself has succeeded and only the fetch after it failed. BullMQ must not repeat the command.
      if (fetch.isPlainFetch) throw error;
      return 0;
    }
  }

  async #fetchUntilJob(first: RepeatedFetch, { client, prefix, lockOptions }: FetchParts): Promise<unknown> {
    let again = first;
    const untilMs = this.#clock.monotonicMs() + (this.#isLooping ? MAX_FETCH_MS : Number.POSITIVE_INFINITY);
    do {
      if (again.kind === "again") this.#reportParked(again);
      else await this.#computeKeys(again.jobs);
      const lockToken = this.#locks.newToken();
      const sent = readClock(this.#clock);
      const raw = await runScript(client, this.#scripts.commands.moveToActive, [
        ...fetchArguments(prefix, lockOptions(), this.#nowMs()),
        lockToken,
      ]);
      const { reply } = this.#unwrapReply(raw);
      const next = this.#recordReply(reply, sent, lockToken);
      if (next === undefined) return reply;
      again = next;
    } while (this.#clock.monotonicMs() < untilMs);
    if (again.kind === "again") this.#reportParked(again);
    return fetchAgainReply;
  }

  /** Separates BullMQ's reply from the lane's reports, and passes the reports to the event callbacks. */
  #unwrapReply(raw: unknown): CommandReply {
    const unwrapped = unwrapReply(raw);
    if (unwrapped.fault !== undefined) this.#events.onFault(unwrapped.fault);
    for (const [key, untilMs] of unwrapped.limited) this.#reportLimit(key, untilMs);
    return unwrapped;
  }

  #reportLimit(key: string, untilMs: number): void {
    if (this.#reportedLimits.get(key) === untilMs) return;
    // Reinserted at the end, so that the first entry is the oldest.
    this.#reportedLimits.delete(key);
    this.#reportedLimits.set(key, untilMs);
    const [oldest] = this.#reportedLimits.keys();
    if (this.#reportedLimits.size > MAX_REPORTED_LIMITS && oldest !== undefined) this.#reportedLimits.delete(oldest);
    this.#events.onLimited(key, untilMs);
  }

  #reportParked({ parked, fault }: RepeatedFetch & { readonly kind: "again" }): void {
    if (parked > 0) this.#events.onParked(parked);
    if (fault !== undefined) this.#events.onFault(fault);
  }

  /** Stores the record of a job that a reply brought, and reports the jobs that were parked before it. */
  #record(taken: TakenJob): void {
    const { fencingToken, jobId, parked, unknown } = taken;
    this.#takenJobs.set(jobId, taken);
    if (fencingToken === undefined) taken.claimLock();
    if (parked > 0) this.#events.onParked(parked);
    // Not awaited: if the computation fails, the next fetch asks for these keys again.
    if (unknown.length > 0) this.#computeKeys(unknown).catch(() => {});
  }

  /**
   * Computes the keys of jobs and stores them in Redis. Only one computation runs at a time. If one is running already,
   * this call only waits for it; the caller's next fetch asks again for any keys that are still missing.
   */
  async #computeKeys(jobs: readonly UnknownKeyJob[]): Promise<void> {
    if (this.#keyComputation !== undefined) {
      await this.#keyComputation;
      return;
    }
    const pairs = jobs.flatMap((job) => [job.id, formatPin(pinOfJob(job, this.#keyOf))]);
    this.#keyComputation = this.operate("pin", ...pairs).then(() => {});
    try {
      await this.#keyComputation;
    } finally {
      this.#keyComputation = undefined;
    }
  }

  #attached(): BullTarget {
    if (this.#target === undefined) throw new TypeError("the lane is not attached to a worker");
    return this.#target;
  }

  #nowMs(): number {
    return Math.floor(this.#clock.wallMs());
  }
}

/** Arguments shared by the fetches that continue a command. */
interface FetchParts {
  readonly client: BullClient;
  readonly prefix: unknown;
  readonly lockOptions: () => unknown;
  /** Whether the command is a plain fetch, which neither ends nor moves a job. */
  readonly isPlainFetch: boolean;
}

/** The end of a job, on its way to Redis. */
interface PendingEnd {
  readonly client: BullClient;
  readonly end: JobEnd;
  readonly instruction: LockInstruction | undefined;
  /** The job's keys as an argument of `moveToFinished`, see `TakenJob.keysArgument`. */
  readonly keys: string;
  /** Token for the lock of the job that the reply may bring. */
  readonly lockToken: string;
  sent: Instant | undefined;
}

/** Returns the arguments of one end for `eachEnd` in scripts/commands.lua.ts. */
function endArguments({ end, instruction, keys, lockToken }: PendingEnd): (string | number)[] {
  return end.argumentsWith(keys, `${tokenToRelease(instruction)} ${lockToken}`);
}

/** Throws `JobCancelledError` if the command was refused because the job was cancelled. */
function throwIfCancelled(jobId: string, reply: unknown): void {
  const pin = parsePin(parseRefusedCommand(reply) ?? "");
  if (pin.kind === "cancelled") throw new JobCancelledError(jobId, pin.cancellation);
}

function parseTakenJob(reply: unknown, sent: Instant, lockToken: string): TakenJob | undefined {
  return bringsJob(reply) ? new TakenJob(reply, sent, lockToken) : undefined;
}

/** Formats `how` as the extra argument of `moveToDelayed` in scripts/commands.lua.ts. */
function formatMoveBack(how: MoveBack): string {
  if ("backOffMs" in how) return `!${how.backOffMs}`;
  return how.parkedSinceMs === undefined ? String(how.place) : `${how.place}@${how.parkedSinceMs}`;
}

function isSingleCommand(name: string): name is SingleCommand {
  return name !== "moveToFinished" && isDecorated(name);
}

/** Returns the arguments that follow BullMQ's own, see scripts/commands.lua.ts. */
function extraArguments(command: SingleCommand, moveBack: string | undefined, lockToken: string): readonly unknown[] {
  switch (command) {
    case "moveToActive":
      return [lockToken];
    case "moveToDelayed":
      return [`${moveBack ?? ""} ${lockToken}`];
    default:
      return [];
  }
}
