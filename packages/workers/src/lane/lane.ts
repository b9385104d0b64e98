/**
 * The lane as the worker sees it takes and leaves jobs through our scripts in place of BullMQ's. It computes keys
 * ahead, and asks the lane on behalf of operators.
 *
 * What the lane guarantees is said in scripts/lane.lua.ts.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, messageOf, readClock } from "@x/redlock-core/protocol";
import {
  argumentsOf,
  askAgain,
  type BullClient,
  type BullTarget,
  fetchArguments,
  isDecorated,
  removeJob,
  runScript,
  type SingleCommand,
} from "../bullmq/bullmq.ts";
import { EndBatches, sendRefusedAgain } from "../bullmq/end-batches.ts";
import { JobEnd, replaceEndArguments } from "../bullmq/job-end.ts";
import type { LaneScripts } from "../bullmq/rules/compose.ts";
import { queueKeys } from "../bullmq/rules/queue-keys.ts";
import { rejectingPlainly } from "../plainly.ts";
import { formatPin, type Pin, pinOfValue } from "../rules/entity-key.ts";
import {
  bringsJob,
  type CommandReply,
  parseEnds,
  parseRepeatedFetch,
  type RepeatedFetch,
  type UnknownKeyJob,
  unwrapReply,
} from "../scripts/command-replies.ts";
import type { OperatorCommand } from "../scripts/operate.lua.ts";
import { type Ending, TakenJob, takenAs } from "./taken-job.ts";

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

interface LaneEvents {
  /** Reports that jobs were parked while one was fetched. */
  onParked(parked: number): void;
  /** Reports that a job could not be judged, or a key not passed on. */
  onFault(fault: string): void;
  /** Reports, once for each such time, that jobs of a key wait until then (ms since the epoch) because of its rate. */
  onLimited(key: string, untilMs: number): void;
}

/** What the lane asks of the locks of keys. */
export interface LaneLocks {
  /** Returns the token for the lock of the job that a script may fetch; empty if it is to take none. */
  newToken(): string;
  /** Returns what the command that ends a job is to do with the lock of its key, once. */
  endingOf(taken: TakenJob | undefined, jobId: string): Ending | undefined;
}

/** How a job goes back to `delayed`. */
export type Leaving =
  /** It keeps its keys, and has this place in line for its locks. */
  | { readonly place: number; readonly parkedSinceMs?: number | undefined }
  /** Nothing of its keys starts for so long. It goes first afterwards. */
  | { readonly backOffMs: number };

/**
 * One fetch parks batches or computes keys for at most this long.
 *
 * BullMQ's loop starts the jobs that it has taken, one after each fetch, only when that has answered, and renews no
 * lock of theirs before. With many free slots, the last one starts so many times later.
 */
const FETCH_MS = 10;

/** The most limited keys that are remembered, so that each is told of once. */
const MOST_LIMITS = 10_000;

export class Lane {
  readonly #scripts: LaneScripts;
  readonly #keyOf: KeyFunction;
  readonly #clock: Clock;
  readonly #lockDurationMs: number;
  readonly #events: LaneEvents;
  readonly #locks: LaneLocks;
  /** What this worker has taken and not ended. Of a job that it lost and took again, it is what it took last. */
  readonly #taken = new Map<string, TakenJob>();
  /** What `moveToDelayed` is told of a job that goes back, by the job and its token. */
  readonly #leaving = new Map<string, string>();
  readonly #ends: EndBatches<Ended>;
  /** Keys that were limited when a job of them was last looked at, and until when. */
  readonly #limits = new Map<string, number>();
  #target: BullTarget | undefined;
  #isLooping = false;
  #pinning: Promise<void> | undefined;

  constructor(parts: {
    readonly scripts: LaneScripts;
    readonly keyOf: KeyFunction;
    readonly clock: Clock;
    /** BullMQ's lock of a job lasts for so long. What leaves the job, and was refused, is sent again until then. */
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
    this.#ends = new EndBatches((ends) => this.#sendEnds(ends), {
      onReply: (ended, answer) => this.#ended(ended, answer),
      onFailure: ({ ending }) => ending?.answer.settle(false),
    });
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

  /** Returns what was taken of this id, until it is ended. */
  takenOf(jobId: string): TakenJob | undefined {
    return this.#taken.get(jobId);
  }

  /**
   * Returns as what a job was taken that is made now, to be run. It is undefined if the job did not come through the
   * lane. Whoever fetches by hand may never end the job, so it is remembered by the job alone.
   */
  handOut(jobId: string): TakenJob | undefined {
    const taken = this.#taken.get(jobId);
    if (!this.#isLooping && taken !== undefined) this.forget(taken);
    return taken;
  }

  /** Forgets a job that this worker is not known to end. */
  forget(taken: TakenJob): void {
    if (this.#taken.get(taken.jobId) === taken) this.#taken.delete(taken.jobId);
  }

  /** Runs `moveToDelayed`, which must move this job back with this token. Nothing is counted then. */
  async leaving(
    { jobId, token }: { readonly jobId: string; readonly token: string },
    how: Leaving,
    moveToDelayed: () => Promise<void>,
  ): Promise<void> {
    const name = `${jobId} ${token}`;
    this.#leaving.set(name, formatLeaving(how));
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
    return await rejectingPlainly(() => removeJob(target, jobId));
  }

  /** Computes the keys of jobs. Returns the IDs of the jobs that have `key`. */
  withKey(key: string, jobs: readonly UnknownKeyJob[]): string[] {
    return jobs
      .filter((job) => {
        const pin = this.#pinOf(job);
        return pin.kind === "keys" && pin.keys.includes(key);
      })
      .map(({ id }) => id);
  }

  async operate(command: OperatorCommand, ...args: readonly (string | number)[]): Promise<unknown> {
    const target = this.#attached();
    const prefix = target.queue.toKey("");
    return await rejectingPlainly(async () => {
      const client = await target.queue.client;
      const keys = [`${prefix}lane:holders`, `${prefix}lane:none`];
      return await runScript(client, this.#scripts.operate, [...keys, prefix, this.#nowMs(), command, ...args]);
    });
  }

  /** Runs a command for one job, as BullMQ makes it. */
  async #exec(client: BullClient, command: SingleCommand, args: readonly unknown[]): Promise<unknown> {
    const script = this.#scripts.commands[command];
    const { jobId, token, prefix, lockOptions } = argumentsOf(command, args, script.numberOfKeys);
    const taken = this.#known(jobId, token);
    if (taken !== undefined) this.forget(taken);
    const ending = this.#locks.endingOf(taken, jobId);
    const lockToken = this.#locks.newToken();
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
      const again = this.#received(raw, sent, lockToken);
      if (again === undefined) return raw;
      return await this.#fetchOn(again, {
        client,
        prefix,
        lockOptions: () => lockOptions,
        isAlone: command === "moveToActive",
      });
    } finally {
      ending?.answer.settle(false);
    }
  }

  /** Sends the end of a job with those of others. Whoever ends the job has it as it was taken, or its id. */
  #end(client: BullClient, end: JobEnd): Promise<unknown> {
    const { job, jobId, token } = end.facts;
    const taken = takenAs(job) ?? this.#known(jobId, token);
    if (taken !== undefined) this.forget(taken);
    const ending = this.#locks.endingOf(taken, jobId);
    const [keys, lockToken] = [taken?.toldKeys ?? "", this.#locks.newToken()];
    return this.#ends.add({ client, end, ending, keys, lockToken, sent: undefined });
  }

  /** Passes on what the answer to an end brought. Returns BullMQ's own reply. */
  #ended(ended: Ended, answer: unknown): unknown {
    const { reply, isLockKept } = this.#told(answer);
    const { ending, lockToken, sent = readClock(this.#clock) } = ended;
    let taken: TakenJob | undefined;
    try {
      taken = takenBy(reply, sent, lockToken);
    } finally {
      ending?.answer.settle(!isLockKept, taken);
    }
    if (taken !== undefined) this.#note(taken);
    const again = taken === undefined ? parseRepeatedFetch(reply) : undefined;
    if (again === undefined) return reply;
    const { client, end } = ended;
    const { prefix } = end.facts;
    return this.#fetchOn(again, { client, prefix, lockOptions: () => end.lockOptions, isAlone: false });
  }

  async #sendEnds(ends: readonly Ended[]): Promise<readonly unknown[]> {
    const [first] = ends;
    if (first === undefined) return [];
    const { client } = first;
    const { prefix } = first.end.facts;
    const args = [...queueKeys(prefix), prefix, ...ends.flatMap(toldOf)];
    const run = (): Promise<unknown> => {
      const sent = readClock(this.#clock);
      for (const ended of ends) ended.sent = sent;
      return runScript(client, this.#scripts.commands.moveToFinished, args);
    };
    return parseEnds(await sendRefusedAgain(this.#clock, this.#lockDurationMs, run));
  }

  /** Returns what was taken of this id, unless it is known to have another token. */
  #known(jobId: string, token: string): TakenJob | undefined {
    const taken = this.#taken.get(jobId);
    return taken?.isOf(token) === true ? taken : undefined;
  }

  /** Looks at the reply of a command that may have brought a job. Returns it if more is to be fetched. */
  #received(raw: unknown, sent: Instant, lockToken: string): RepeatedFetch | undefined {
    const taken = takenBy(raw, sent, lockToken);
    if (taken === undefined) return parseRepeatedFetch(raw);
    this.#note(taken);
    return undefined;
  }

  /** Fetches until there is a job, or none. Resolves with BullMQ's own reply. */
  async #fetchOn(first: RepeatedFetch, fetch: FetchParts): Promise<unknown> {
    try {
      return await this.#fetchUntilJob(first, fetch);
    } catch (error) {
      // The job was left, only the next one could not be taken: BullMQ must not leave it a second time.
      if (fetch.isAlone) throw error;
      return 0;
    }
  }

  async #fetchUntilJob(first: RepeatedFetch, { client, prefix, lockOptions }: FetchParts): Promise<unknown> {
    let again = first;
    const untilMs = this.#clock.monotonicMs() + (this.#isLooping ? FETCH_MS : Number.POSITIVE_INFINITY);
    do {
      if (again.kind === "again") this.#tell(again);
      else await this.#computeKeys(again.jobs);
      const lockToken = this.#locks.newToken();
      const sent = readClock(this.#clock);
      const answer = await runScript(client, this.#scripts.commands.moveToActive, [
        ...fetchArguments(prefix, lockOptions(), this.#nowMs()),
        lockToken,
      ]);
      const { reply: raw } = this.#told(answer);
      const next = this.#received(raw, sent, lockToken);
      if (next === undefined) return raw;
      again = next;
    } while (this.#clock.monotonicMs() < untilMs);
    if (again.kind === "again") this.#tell(again);
    return askAgain;
  }

  #told(answer: unknown): CommandReply {
    const told = unwrapReply(answer);
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

  #tell({ parked, fault }: RepeatedFetch & { readonly kind: "again" }): void {
    if (parked > 0) this.#events.onParked(parked);
    if (fault !== undefined) this.#events.onFault(fault);
  }

  #note(taken: TakenJob): void {
    const { fencingToken, jobId, parked, unknown } = taken;
    this.#taken.set(jobId, taken);
    if (fencingToken === undefined) taken.claimLock();
    if (parked > 0) this.#events.onParked(parked);
    // Nobody waits for it: if it fails, the next fetch asks again.
    if (unknown.length > 0) this.#computeKeys(unknown).catch(() => {});
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
      return pinOfValue(this.#keyOf({ ...job, data }));
    } catch (error) {
      return { kind: "fault", fault: `function threw: ${messageOf(error).slice(0, 500)}` };
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

/** What further fetches need. */
interface FetchParts {
  readonly client: BullClient;
  readonly prefix: unknown;
  readonly lockOptions: () => unknown;
  /** Whether the fetch follows no other command. */
  readonly isAlone: boolean;
}

/** A job that is ended, and what follows it. */
interface Ended {
  readonly client: BullClient;
  readonly end: JobEnd;
  readonly ending: Ending | undefined;
  /** The keys of the job, as `moveToFinished` in scripts/commands.lua.ts is told them. */
  readonly keys: string;
  /** The token for the lock of the job that the end brings. */
  readonly lockToken: string;
  sent: Instant | undefined;
}

/** Returns what `eachEnd` in scripts/commands.lua.ts reads of an end. */
function toldOf({ end, ending, keys, lockToken }: Ended): (string | number)[] {
  return end.toldWith(keys, `${ending?.token ?? ""} ${lockToken}`);
}

/** Returns the job that came with a reply, if one did. */
function takenBy(raw: unknown, sent: Instant, lockToken: string): TakenJob | undefined {
  return bringsJob(raw) ? new TakenJob(raw, sent, lockToken) : undefined;
}

/** Returns what `moveToDelayed` in scripts/commands.lua.ts is told. */
function formatLeaving(how: Leaving): string {
  if ("backOffMs" in how) return `!${how.backOffMs}`;
  return how.parkedSinceMs === undefined ? String(how.place) : `${how.place}@${how.parkedSinceMs}`;
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
