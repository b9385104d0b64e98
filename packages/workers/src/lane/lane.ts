/**
 * The worker's side of the lane. The class fetches, ends and moves jobs with the lane's scripts instead of BullMQ's
 * own, and runs the commands of operators.
 *
 * The guarantees of the lane are described in scripts/lane.lua.ts.
 */
import type { Clock } from "@x/redlock-core";
import { readClock } from "@x/redlock-core/kit";
import {
  argumentsOf,
  type BullClient,
  type BullTarget,
  isDecorated,
  runScript,
  type SingleCommand,
} from "../bullmq/bullmq.ts";
import { sendRefusedAgain } from "../bullmq/end-batches.ts";
import { JobEnd, replaceEndArguments } from "../bullmq/job-end.ts";
import type { LaneScripts } from "../bullmq/rules/compose.ts";
import type { KeyFunction } from "../rules/stored-job.ts";
import type { OperatorCommand } from "../scripts/operate.lua.ts";
import { JobEnds, throwIfCancelled } from "./ends.ts";
import { Fetching } from "./fetching.ts";
import { KeyComputation } from "./key-computation.ts";
import { type LaneEvents, LaneReports } from "./lane-reports.ts";
import { operate } from "./operate.ts";
import { type LaneLocks, settle, type TakenJob } from "./taken-job.ts";
import { TakenJobs } from "./taken-jobs.ts";

/** How a job is moved back to `delayed`. */
export type MoveBack =
  /** The job keeps its keys, and waits for its locks at this place in line. */
  | { readonly place: number; readonly parkedSinceMs?: number | undefined }
  /** No job of its keys starts for this many milliseconds. Afterwards this job starts first. */
  | { readonly backOffMs: number };

export class Lane {
  readonly #scripts: LaneScripts;
  readonly #clock: Clock;
  readonly #lockDurationMs: number;
  readonly #locks: LaneLocks;
  readonly #takenJobs = new TakenJobs();
  readonly #reports: LaneReports;
  readonly #fetching: Fetching;
  readonly #ends: JobEnds;
  /** Extra argument of `moveToDelayed` for jobs that are being moved back, by job ID and token. */
  readonly #moveBackArguments = new Map<string, string>();
  #target: BullTarget | undefined;

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
    const { scripts, keyOf, clock, lockDurationMs, events, locks } = parts;
    this.#scripts = scripts;
    this.#clock = clock;
    this.#lockDurationMs = lockDurationMs;
    this.#locks = locks;
    this.#reports = new LaneReports(events);
    const shared = { clock, takenJobs: this.#takenJobs, reports: this.#reports };
    this.#fetching = new Fetching({
      ...shared,
      script: scripts.commands.moveToActive,
      keys: new KeyComputation(keyOf, (pairs) => this.operate("pin", ...pairs)),
      newToken: () => locks.newToken(),
    });
    const script = scripts.commands.moveToFinished;
    this.#ends = new JobEnds({ ...shared, script, lockDurationMs, fetching: this.#fetching, locks });
  }

  /** Routes the worker's commands that fetch, end or move a job through the lane. */
  attach(target: BullTarget): void {
    this.#target = target;
    const original = target.execCommand.bind(target);
    replaceEndArguments(target);
    target.execCommand = (client, name, args) => {
      if (args instanceof JobEnd) return this.#ends.add(client, args);
      return isSingleCommand(name) ? this.#exec(client, name, args) : original(client, name, args);
    };
  }

  /**
   * Marks that BullMQ's loop does the fetching. The loop repeats a fetch that found no job in time. A manual
   * `getNextJob()` does not, so its fetch continues until there is a job or the queue has none to offer.
   */
  markLoopStarted(): void {
    this.#takenJobs.markLoopStarted();
  }

  /** Returns the record of a job that this worker has taken and not yet ended. */
  findTakenJob(jobId: string): TakenJob | undefined {
    return this.#takenJobs.find(jobId);
  }

  /**
   * Returns the `TakenJob` for a job that is about to run. Undefined if the lane did not fetch the job.
   *
   * Without BullMQ's loop the lane forgets the record here, because a job that was fetched by hand may never be ended.
   * The caller attaches the record to the BullMQ job.
   */
  handOut(jobId: string): TakenJob | undefined {
    return this.#takenJobs.handOut(jobId);
  }

  /** Drops the record of a job that this worker ends now or may never end. */
  forget(taken: TakenJob): void {
    this.#takenJobs.forget(taken);
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
    const call = { script, nowMs: Math.floor(this.#clock.wallMs()), rules: "" };
    return await operate(this.#attached(), call, command, args);
  }

  /** Runs a command of BullMQ with the lane's script: a fetch, or a move of one job. */
  async #exec(client: BullClient, command: SingleCommand, args: readonly unknown[]): Promise<unknown> {
    const script = this.#scripts.commands[command];
    const { jobId, token, prefix, lockOptions } = argumentsOf(command, args, script.numberOfKeys);
    const taken = this.#takenJobs.findWithToken(jobId, token);
    if (taken !== undefined) this.forget(taken);
    const instruction = taken?.takeLockInstruction();
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
      const { reply } = this.#reports.unwrapReply(await sendRefusedAgain(this.#clock, forMs, run));
      throwIfCancelled(jobId, reply);
      const again = this.#fetching.recordReply(reply, sent, lockToken);
      if (again === undefined) return reply;
      return await this.#fetching.continue(again, {
        client,
        prefix,
        lockOptions: () => lockOptions,
        isPlainFetch: command === "moveToActive",
      });
    } finally {
      settle(instruction, false, this.#locks);
    }
  }

  #attached(): BullTarget {
    if (this.#target === undefined) throw new TypeError("the lane is not attached to a worker");
    return this.#target;
  }
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
