/**
 * The lane as the worker sees it takes and leaves jobs through our scripts in place of BullMQ's. It computes keys
 * ahead, and asks the lane on behalf of operators.
 *
 * What the lane guarantees is said in scripts/lane.lua.ts.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock } from "@x/redlock-core/protocol";
import {
  argumentsOf,
  type BullClient,
  type BullReply,
  type BullTarget,
  type Following,
  fetchArguments,
  isDecorated,
  parseEnds,
  parseJobs,
  parseReply,
  runScript,
  type SingleCommand,
  splitTold,
  type Told,
  type UnknownKeyJob,
} from "../bullmq/bullmq.ts";
import type { LaneScripts, OperatorCommand } from "../bullmq/compose.ts";
import { EndBatches } from "../bullmq/end-batches.ts";
import { JobEnd, queueKeys, replaceEndArguments } from "../bullmq/job-end.ts";
import { sendRefusedAgain } from "../bullmq/refused.ts";
import { formatPin, type Pin, parsePin, pinOfValue, slotSuffix } from "../entity-key.ts";
import { withoutCommand } from "../errors.ts";
import { ShortLivedMap } from "../short-lived-map.ts";
import type { EarlyStart } from "./early-start.ts";
import type { LockAhead } from "./lock-ahead.ts";
import type { ScriptLocks } from "./script-locks.ts";

/** A job as it is stored, for the function that finds its key. */
export interface StoredJob<Data = unknown, Name extends string = string> {
  readonly id: string;
  readonly name: Name;
  readonly data: Data;
  /** The time at which it was added, in ms since the epoch. */
  readonly timestamp: number;
  readonly priority: number;
  readonly parentKey: string | undefined;
}

export type KeyFunction = (job: StoredJob) => unknown;

/** An arrival is what the fetch of a job told: its keys, and when it was asked for. */
export interface Arrival {
  readonly pin: Pin;
  /** The time at which the command was sent that set BullMQ's lock. */
  readonly sent: Instant;
  /** Its place in line for its locks, if it waited for them before. */
  readonly order: number | undefined;
  /** Whether its end is likely to bring the next job of its one key. */
  readonly isFollowed: boolean;
  /** The lock of its key, if it was asked for already. */
  readonly ahead: LockAhead | undefined;
  /** The job that may begin when this one has succeeded, if the worker starts such jobs at once. */
  readonly following: Following | undefined;
  /** What the call of another job has made of it, if one has. */
  readonly outcome: string | undefined;
  /** When it was parked, in ms since the epoch, if it was. */
  readonly parkedSinceMs: number | undefined;
  /** Its run, if it has begun already. */
  readonly early: EarlyStart | undefined;
  /** The numbers of its slots, one for each key; undefined if it has the first of each. */
  readonly slots: readonly number[] | undefined;
}

interface LaneEvents {
  /** Reports that jobs were parked while one was fetched. */
  onParked(parked: number): void;
  /** Reports that a job could not be judged, or a key not passed on. */
  onFault(fault: string): void;
  /** Reports, once for each such time, that jobs of a key wait until then (ms since the epoch) because of its rate. */
  onLimited(key: string, untilMs: number): void;
}

export type LaneLocks = Pick<ScriptLocks, "newToken" | "granted" | "endingOf">;

/**
 * One fetch parks batches or computes keys for at most this long.
 *
 * BullMQ's loop starts the jobs that it has taken, one after each fetch, only when that has answered, and renews no
 * lock of theirs before. With many free slots, the last one starts so many times later.
 */
const FETCH_MS = 10;

/** So many limited keys are remembered, so that each is told of once. */
const MOST_LIMITS = 10_000;

/** This text stands in place of a job's id: nothing was taken, and the queue is not drained. */
export const ASK_AGAIN_ID = "LANE_AGAIN";

/**
 * Says that nothing was taken and that jobs are due since long ago. BullMQ then starts one that it has, and asks again
 * at once.
 */
const ASK_AGAIN = [0, ASK_AGAIN_ID, 0, 1] as const;

export class Lane {
  readonly #scripts: LaneScripts;
  readonly #keyOf: KeyFunction;
  readonly #clock: Clock;
  readonly #lockDurationMs: number;
  readonly #events: LaneEvents;
  readonly #locks: LaneLocks | undefined;
  readonly #arrivals = new ShortLivedMap<Arrival>();
  /** What `moveToDelayed` is told of a job that goes back, by the job and its token. */
  readonly #leaving = new Map<string, string>();
  readonly #aheads = new Map<string, LockAhead>();
  /** Runs that have begun before their jobs were handed out, by the id of the job. */
  readonly #early = new Map<string, EarlyStart>();
  readonly #ends: EndBatches<Ended>;
  /** Keys that were limited when a job of them was last looked at, and until when. */
  readonly #limits = new Map<string, number>();
  #target: BullTarget | undefined;
  #isLooping = false;
  #pinning: Promise<void> | undefined;
  /** The arguments that all requests for ends begin with. */
  #endsHead: readonly string[] = [];

  constructor(parts: {
    readonly scripts: LaneScripts;
    readonly keyOf: KeyFunction;
    readonly clock: Clock;
    /** BullMQ's lock of a job lasts for so long. What leaves the job, and was refused, is sent again until then. */
    readonly lockDurationMs: number;
    readonly events: LaneEvents;
    /** The locks of keys, if the scripts take and release them themselves. */
    readonly locks?: LaneLocks | undefined;
  }) {
    this.#scripts = parts.scripts;
    this.#keyOf = parts.keyOf;
    this.#clock = parts.clock;
    this.#lockDurationMs = parts.lockDurationMs;
    this.#events = parts.events;
    this.#locks = parts.locks;
    this.#ends = new EndBatches(async (ends) => await this.#sendEnds(ends));
  }

  /** Lets the commands of this worker that take or leave a job go through the lane from now on. */
  attach(target: BullTarget): void {
    this.#target = target;
    const original = target.execCommand.bind(target);
    replaceEndArguments(target);
    target.execCommand = (client, name, args) => {
      if (args instanceof JobEnd) return this.#end(client, args);
      return isSingle(name) ? this.#exec(client, name, args) : original(client, name, args);
    };
  }

  /**
   * Says that BullMQ's own loop fetches from now on, which asks again. Whoever fetches by hand is not answered before
   * there is a job, or none.
   */
  loops(): void {
    this.#isLooping = true;
  }

  /** Returns what the fetch of this job told, once. It is undefined if the job did not come through the lane. */
  arrivalOf(jobId: string): Arrival | undefined {
    return this.#arrivals.take(jobId);
  }

  /** Gives this lock to the next job of the key, if the answer to the end of this job brings it. */
  passOn(jobId: string, ahead: LockAhead): void {
    void this.#aheads.get(jobId)?.drop();
    this.#aheads.set(jobId, ahead);
    void ahead.settled.then(() => {
      if (this.#aheads.get(jobId) === ahead) this.#aheads.delete(jobId);
    });
  }

  /**
   * Runs `moveToDelayed`, which must move this job back with this token. The job then keeps its keys, and nothing is
   * counted.
   */
  async yielding(
    run: {
      readonly jobId: string;
      readonly token: string;
      readonly order: number;
      readonly parkedSinceMs?: number | undefined;
    },
    moveToDelayed: () => Promise<void>,
  ): Promise<void> {
    const since = run.parkedSinceMs === undefined ? "" : `@${run.parkedSinceMs}`;
    await this.#leave(run, `${run.order}${since}`, moveToDelayed);
  }

  /**
   * Runs `moveToDelayed`, which must move this job back with this token. Nothing of its keys starts for `ms` then; it
   * goes first afterwards, and nothing is counted.
   */
  async backingOff(
    run: { readonly jobId: string; readonly token: string; readonly ms: number },
    moveToDelayed: () => Promise<void>,
  ): Promise<void> {
    await this.#leave(run, `!${run.ms}`, moveToDelayed);
  }

  async #leave(
    { jobId, token }: { readonly jobId: string; readonly token: string },
    how: string,
    moveToDelayed: () => Promise<void>,
  ): Promise<void> {
    const name = `${jobId} ${token}`;
    this.#leaving.set(name, how);
    try {
      await moveToDelayed();
    } finally {
      this.#leaving.delete(name);
    }
  }

  /** Returns BullMQ's state of a job. */
  async stateOf(jobId: string): Promise<string> {
    const target = this.#attached();
    return await rejectingPlainly(() => target.getState(jobId));
  }

  /** Removes a job that does not run. Resolves false for one that does, or cannot be removed. */
  async remove(jobId: string): Promise<boolean> {
    const target = this.#attached();
    try {
      return (await rejectingPlainly(() => target.remove(jobId, true))) === 1;
    } catch (error) {
      // BullMQ's refusals have a negative code.
      if (Number((error as { readonly code?: unknown }).code) < 0) return false;
      throw error;
    }
  }

  /** Returns the ids of those of the jobs, as a script tells of them, whose keys have this one among them. */
  withKey(key: string, jobs: unknown): string[] {
    return parseJobs(jobs)
      .filter((job) => {
        const pin = this.#pinOf(job);
        return pin.kind === "keys" && pin.keys.includes(key);
      })
      .map(({ id }) => id);
  }

  async operate(command: OperatorCommand, ...args: readonly (string | number)[]): Promise<unknown> {
    const target = this.#attached();
    const prefix = target.queue.toKey("");
    const script = this.#scripts.operators[command];
    return await rejectingPlainly(async () => {
      const client = await target.queue.client;
      const keys = [`${prefix}lane:holders`, `${prefix}lane:none`];
      return await runScript(client, script, [...keys, prefix, this.#nowMs(), ...args]);
    });
  }

  /** Runs a command for one job, as BullMQ makes it. */
  async #exec(client: BullClient, command: SingleCommand, args: readonly unknown[]): Promise<unknown> {
    const script = this.#scripts.commands[command];
    const { jobId, token, prefix, lockOptions } = argumentsOf(command, args, script.numberOfKeys);
    if (this.#early.has(jobId) && !this.#leaving.has(`${jobId} ${token}`)) await this.untilOurs(jobId);
    const ending = this.#locks?.endingOf(jobId);
    const lockToken = this.#locks?.newToken() ?? "";
    const told = args.concat(addition(command, this.#leaving.get(`${jobId} ${token}`), lockToken));
    let sent = readClock(this.#clock);
    const run = async (): Promise<unknown> => {
      sent = readClock(this.#clock);
      return await runScript(client, script, told);
    };
    try {
      // BullMQ's loop fetches again by itself.
      const forMs = command === "moveToActive" ? 0 : this.#lockDurationMs;
      const raw = this.#told(await sendRefusedAgain(this.#clock, forMs, run)).reply;
      const reply = this.#received(raw, { sent, lockToken, ahead: undefined, early: undefined });
      if (reply === undefined) return raw;
      return await this.#fetchOn(reply, {
        client,
        prefix,
        lockOptions: () => lockOptions,
        isAlone: command === "moveToActive",
      });
    } finally {
      ending?.settle(false);
    }
  }

  /**
   * Waits, for a job whose run has begun before it was handed out, until it is. Rejects if it was not. Others pass at
   * once.
   */
  async untilOurs(jobId: string): Promise<void> {
    const refusal = await this.#early.get(jobId)?.answered;
    if (refusal !== undefined) throw refusal;
  }

  /** Ends a job, together with others. */
  async #end(client: BullClient, end: JobEnd): Promise<unknown> {
    const { jobId, prefix } = end;
    if (this.#early.has(jobId)) await this.untilOurs(jobId);
    this.#arrivals.delete(jobId);
    const ending = this.#locks?.endingOf(jobId);
    const lockToken = this.#locks?.newToken() ?? "";
    const ahead = this.#aheads.get(jobId);
    this.#aheads.delete(jobId);
    const early = end.isFollowed ? ending?.early : undefined;
    const kept = early === undefined ? "" : ` ${early.lockToken} ${early.fencingToken} ${early.jobId}`;
    const ended: Ended = { client, end, locks: `${ending?.token ?? ""} ${lockToken}${kept}`, sent: undefined };
    let answer: unknown;
    try {
      const answering = this.#ends.add(ended);
      if (early !== undefined) this.#begin(early);
      answer = await answering;
    } catch (error) {
      ending?.settle(false);
      void ahead?.drop();
      early?.refuse();
      throw error;
    }
    const { reply: raw, isKept } = this.#told(answer);
    ending?.settle(!isKept);
    const reply = this.#received(raw, { sent: ended.sent ?? readClock(this.#clock), lockToken, ahead, early });
    if (reply === undefined) return raw;
    return await this.#fetchOn(reply, { client, prefix, lockOptions: () => end.lockOptions, isAlone: false });
  }

  #begin(early: EarlyStart): void {
    this.#early.set(early.jobId, early);
    early.begin();
  }

  /** A run that has begun early has ended without its job. */
  dropped(early: EarlyStart): void {
    if (this.#early.get(early.jobId) === early) this.#early.delete(early.jobId);
  }

  async #sendEnds(ends: readonly Ended[]): Promise<readonly unknown[]> {
    const [first] = ends;
    if (first === undefined) return [];
    const { client, end } = first;
    const args = this.#headOf(end.prefix).concat(...ends.map(({ end, locks }) => end.toldWith(locks)));
    const run = async (): Promise<unknown> => {
      const sent = readClock(this.#clock);
      for (const ended of ends) ended.sent = sent;
      return await runScript(client, this.#scripts.commands.moveToFinished, args);
    };
    return parseEnds(await sendRefusedAgain(this.#clock, this.#lockDurationMs, run));
  }

  #headOf(prefix: string): readonly unknown[] {
    if (this.#endsHead.at(-1) !== prefix) this.#endsHead = [...queueKeys(prefix), prefix];
    return this.#endsHead;
  }

  /** Looks at the reply of a command that may have brought a job. Returns it if more is to be fetched. */
  #received(raw: unknown, about: FetchFacts): FetchAgain | undefined {
    const reply = parseReply(raw);
    const isForIt = reply.kind === "job" && lockOf(reply) === about.ahead?.key;
    if (!isForIt) void about.ahead?.drop();
    const { early, sent } = about;
    const isHanded = early !== undefined && isHandedTo(early, reply) && early.confirm(sent);
    if (isHanded) this.#early.delete(early.jobId);
    else early?.refuse();
    if (reply.kind === "job") this.#note(reply, { ...about, ahead: isForIt ? about.ahead : undefined, isHanded });
    return reply.kind === "again" || reply.kind === "ask" ? reply : undefined;
  }

  /** Fetches until there is a job, or none. Resolves with BullMQ's own reply. */
  async #fetchOn(first: FetchAgain, fetch: FetchParts): Promise<unknown> {
    try {
      return await this.#fetchUntilJob(first, fetch);
    } catch (error) {
      // The job was left, only the next one could not be taken: BullMQ must not leave it a second time.
      if (fetch.isAlone) throw error;
      return 0;
    }
  }

  async #fetchUntilJob(first: FetchAgain, { client, prefix, lockOptions }: FetchParts): Promise<unknown> {
    let reply: BullReply = first;
    const untilMs = this.#clock.monotonicMs() + (this.#isLooping ? FETCH_MS : Number.POSITIVE_INFINITY);
    do {
      if (reply.kind === "again") this.#tell(reply);
      if (reply.kind === "ask") await this.#computeKeys(reply.jobs);
      const lockToken = this.#locks?.newToken() ?? "";
      const sent = readClock(this.#clock);
      const answer = await runScript(client, this.#scripts.commands.moveToActive, [
        ...fetchArguments(prefix, lockOptions(), this.#nowMs()),
        lockToken,
      ]);
      const { reply: raw } = this.#told(answer);
      reply = parseReply(raw);
      if (reply.kind === "job") this.#note(reply, { sent, lockToken, ahead: undefined, early: undefined });
      if (reply.kind !== "again" && reply.kind !== "ask") return raw;
    } while (this.#clock.monotonicMs() < untilMs);
    if (reply.kind === "again") this.#tell(reply);
    return ASK_AGAIN;
  }

  #told(answer: unknown): Told {
    const told = splitTold(answer);
    if (told.fault !== undefined) this.#events.onFault(told.fault);
    for (const [key, untilMs] of told.limited) this.#noteLimit(key, untilMs);
    return told;
  }

  #noteLimit(key: string, untilMs: number): void {
    if (this.#limits.get(key) === untilMs) return;
    // Behind those that are known for longer.
    this.#limits.delete(key);
    this.#limits.set(key, untilMs);
    const [oldest] = this.#limits.keys();
    if (this.#limits.size > MOST_LIMITS && oldest !== undefined) this.#limits.delete(oldest);
    this.#events.onLimited(key, untilMs);
  }

  #tell({ parked, fault }: BullReply & { readonly kind: "again" }): void {
    if (parked > 0) this.#events.onParked(parked);
    if (fault !== undefined) this.#events.onFault(fault);
  }

  #note(
    reply: BullReply & { readonly kind: "job" },
    { sent, lockToken, ahead, early, isHanded = false }: FetchFacts & { readonly isHanded?: boolean },
  ): void {
    const { jobId, fencingToken, order, isFollowed, following, slots, outcome, parkedSinceMs } = reply;
    this.#arrivals.set(jobId, {
      pin: parsePin(reply.pin),
      sent,
      ahead,
      early: isHanded ? early : undefined,
      order,
      isFollowed,
      following,
      slots,
      outcome,
      parkedSinceMs,
    });
    // BullMQ may end the job without running it.
    if (ahead !== undefined) this.passOn(jobId, ahead);
    // That of a run that has begun is no new lock, whether it counts or not.
    if (fencingToken !== undefined && jobId !== early?.jobId) {
      this.#locks?.granted(jobId, { key: lockOf(reply), token: lockToken, fencingToken, asked: sent });
    }
    if (reply.parked > 0) this.#events.onParked(reply.parked);
    // Nobody waits for it: if it fails, the next fetch asks again.
    if (reply.ahead.length > 0) this.#computeKeys(reply.ahead).catch(() => {});
  }

  /**
   * Computes keys, once at a time: whoever finds another computation under way waits for that one, and then asks again.
   */
  async #computeKeys(jobs: readonly UnknownKeyJob[]): Promise<void> {
    if (this.#pinning !== undefined) {
      await this.#pinning;
      return;
    }
    const pairs = jobs.flatMap((job) => [job.id, formatPin(this.#pinOf(job))]);
    this.#pinning = this.operate("pin", ...pairs).then(() => {});
    try {
      await this.#pinning;
    } finally {
      this.#pinning = undefined;
    }
  }

  #pinOf(job: UnknownKeyJob): Pin {
    let data: unknown;
    try {
      data = JSON.parse(job.data);
    } catch {
      return { kind: "fault", fault: "cannot be found: the job's data is not JSON" };
    }
    try {
      const value = this.#keyOf({ ...job, data });
      if (!(value instanceof Promise)) return pinOfValue(value);
      value.catch(() => {});
      return { kind: "fault", fault: "function returned a promise, but must be synchronous" };
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return { kind: "fault", fault: `function threw: ${message.slice(0, 500)}` };
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

/** What is known of a command that may have brought a job. */
interface FetchFacts {
  readonly sent: Instant;
  /** The token for the lock of the job's key. */
  readonly lockToken: string;
  readonly ahead: LockAhead | undefined;
  /** The run that has begun with the command. */
  readonly early: EarlyStart | undefined;
}

/** What further fetches need. */
interface FetchParts {
  readonly client: BullClient;
  readonly prefix: unknown;
  readonly lockOptions: () => unknown;
  /** Whether the fetch follows no other command. */
  readonly isAlone: boolean;
}

type FetchAgain = Extract<BullReply, { readonly kind: "again" | "ask" }>;

interface Ended {
  readonly client: BullClient;
  readonly end: JobEnd;
  /** The text that is the last argument of `moveToFinished` in scripts/commands.lua.ts. */
  readonly locks: string;
  sent: Instant | undefined;
}

/** Returns the key of a job that has one, and its slot of it, as they stand in the name of its lock. */
function lockOf({ pin, slots }: BullReply & { readonly kind: "job" }): string {
  return pin + slotSuffix(slots?.[0]);
}

/** Was the job of this run handed out to it, under the lock that it has? */
function isHandedTo({ jobId, fencingToken }: EarlyStart, reply: BullReply): boolean {
  return reply.kind === "job" && reply.jobId === jobId && reply.fencingToken === fencingToken;
}

function isSingle(name: string): name is SingleCommand {
  return name !== "moveToFinished" && isDecorated(name);
}

/** Returns what a command is told behind BullMQ's own arguments (see scripts/commands.lua.ts). */
function addition(command: SingleCommand, how: string | undefined, lockToken: string): readonly unknown[] {
  switch (command) {
    case "moveToActive":
      return [lockToken];
    case "moveToDelayed":
      return [`${how ?? ""} ${lockToken}`];
    default:
      return [];
  }
}

async function rejectingPlainly<Value>(ask: () => Promise<Value>): Promise<Value> {
  try {
    return await ask();
  } catch (error) {
    throw withoutCommand(error);
  }
}
