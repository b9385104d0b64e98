/**
 * This folder adapts BullMQ. This file contains the lane's knowledge of BullMQ's scripts: the known texts, how to call
 * the scripts, and how BullMQ reads a reply. job-end.ts replaces the arguments of the command that ends a job. job.ts
 * and processor.ts read how BullMQ builds jobs and calls processors. connections.ts corrects BullMQ's connections. Code
 * that runs without BullMQ is in rules/.
 *
 * Two classes override methods that BullMQ's `Worker` calls, and depend on when it calls them. TypeScript checks that
 * these methods exist:
 * - exclusive-worker.ts: `createJob`, `nextJobFromJobData`, `callProcessJob` and `extendJobLocks`.
 * - partition-worker.ts: `moveToActive`, `processJob` and `callProcessJob`.
 *
 * This file makes the following assumptions. The constructor of a worker checks all but the last one:
 * - The SHA-1 of each of the six script texts is known. Unknown texts are rejected, because our Lua reads and writes
 *   the same keys as these scripts.
 * - Every command of the worker and of its jobs goes through `execCommand` of the worker's backend (BullMQ 6) or
 *   `scripts` (BullMQ 5). Jobs use the same object.
 * - The lock manager's `trackedJobs` contain the jobs whose locks BullMQ renews, with the signals that BullMQ made.
 *   `untrackJob` removes a job.
 * - Each script text implies an order of arguments.
 */
import { setImmediate as nextLoopTurn } from "node:timers/promises";
import { RedisConnection } from "bullmq";
import { UnsupportedBullMQError } from "../errors.ts";
import { TAGS } from "../scripts/command-replies.ts";
import {
  type BullScript,
  type BullScripts,
  type ComposedScript,
  type DecoratedCommand,
  decorated,
} from "./rules/compose.ts";
import { queueKeys } from "./rules/queue-keys.ts";
import { fingerprintOf, missingScripts, nearestSet, textsOf } from "./rules/script-sets.ts";

/** A Redis client as BullMQ wraps it. */
export interface BullClient {
  defineCommand(name: string, definition: BullScript): void;
  /** Missing before BullMQ 5.77, where each command is a method of the client. */
  runCommand?(name: string, args: readonly unknown[]): Promise<unknown>;
}

/** The worker's backend in BullMQ 6, or its `scripts` in BullMQ 5. */
export interface BullTarget {
  readonly queue: { readonly client: Promise<BullClient>; toKey(type: string): string };
  execCommand(client: BullClient, name: string, args: readonly unknown[]): Promise<unknown>;
  getState(jobId: string): Promise<string>;
  /** Resolves with 1 if the job was removed, and with a lower number if the job is locked or does not exist. */
  remove(jobId: string, removeChildren: boolean): Promise<number>;
  extendLock(jobId: string, token: string, durationMs: number, client?: unknown): Promise<number>;
}

/** A call of `job.extendLock`. BullMQ's own renewals extend the locks of many jobs in one request. */
export interface LockExtension {
  readonly jobId: string;
  readonly token: string;
  readonly durationMs: number;
  /** Sends BullMQ's command. Resolves with 1, or with 0 if the token does not hold the lock. */
  readonly ask: () => Promise<number>;
}

/**
 * Returns the script texts of the installed BullMQ, or of another BullMQ with its class `RedisConnection`. Instead of a
 * deep import, BullMQ "defines" the scripts on a collector.
 */
export function installedScripts(connection: object = RedisConnection): Readonly<Record<string, BullScript>> {
  const scripts: Record<string, BullScript> = {};
  const collector = {
    defineCommand(name: string, definition: BullScript): void {
      scripts[name.split(":")[0] ?? name] = definition;
    },
  };
  const { prototype } = connection as {
    prototype: { loadCommands?: (this: { _client: typeof collector }, version: string) => void };
  };
  prototype.loadCommands?.call({ _client: collector }, "x");
  return scripts;
}

/**
 * Returns the scripts that the lane builds on, and the names of the scripts whose texts are unknown but accepted.
 * Throws `UnsupportedBullMQError` if a script is missing, or if texts are unknown and `accepted` is not their
 * fingerprint.
 */
export function checkScripts(
  scripts: Readonly<Record<string, BullScript>>,
  accepted?: string,
): { readonly scripts: BullScripts; readonly untested: readonly string[] } {
  const missing = missingScripts(scripts);
  if (missing.length > 0) throw new UnsupportedBullMQError(missing.map((name) => `script ${name} is missing`));
  const bull = scripts as BullScripts;
  const texts = textsOf(bull);
  const { set, differing } = nearestSet(texts);
  const fingerprint = fingerprintOf(texts);
  if (differing.length === 0 || fingerprint === accepted) return { scripts: bull, untested: differing };
  const differences = differing.map((name) => `script ${name} has the unknown text ${texts[name]}`);
  if (accepted !== undefined) differences.push(`acceptScripts is ${accepted} and not ${fingerprint}`);
  throw new UnsupportedBullMQError(differences, { fingerprint, scripts: differing, nearest: set.to });
}

/**
 * Releases that take no job anymore, in any worker, after Redis was away for longer than `drainDelay` + 1 s: BullMQ's
 * own timeout closes a connection that is about to reconnect (taskforcesh/bullmq#4585).
 */
const BROKEN = /^6\.(?:0\.(?:[7-9]|\d\d)|[12]\.\d+|3\.[0-2])$/;

/** Throws `UnsupportedBullMQError` if the installed release is known to be broken. */
export function refuseBroken(worker: object): void {
  const { backend, connection } = worker as Connected & { readonly backend?: Connected };
  const { packageVersion = "" } = backend?.connection ?? connection ?? {};
  if (!BROKEN.test(packageVersion)) return;
  throw new UnsupportedBullMQError([`BullMQ ${packageVersion} takes no job after Redis was away for some seconds`]);
}

interface Connected {
  readonly connection?: { readonly packageVersion?: string };
}

/** Returns the object through which BullMQ sends the commands of a worker and of the jobs that it creates. */
export function targetOf(worker: object, sampleJob: object): BullTarget {
  const own = ownTarget(worker);
  const hasAll =
    typeof own?.execCommand === "function" &&
    typeof own.extendLock === "function" &&
    typeof own.queue?.toKey === "function";
  if (!hasAll) {
    throw new UnsupportedBullMQError(["the worker's backend is not BullMQ's Redis backend"]);
  }
  shareTarget(worker, sampleJob);
  if (ownTarget(sampleJob) !== own) throw new UnsupportedBullMQError(["jobs do not use the worker's backend"]);
  return own;
}

/**
 * Makes a job send its commands as its worker does, and returns the job. Until BullMQ 5.80.0 each job creates `scripts`
 * of its own, which would end the job without the lane.
 */
export function shareTarget<OfJob extends object>(worker: object, job: OfJob): OfJob {
  const { scripts } = worker as { readonly scripts?: BullTarget };
  if (scripts !== undefined && "scripts" in job) job.scripts = scripts;
  return job;
}

/** Removes a job and its children. Resolves with false if the job is running or cannot be removed. */
export async function removeJob(target: BullTarget, jobId: string): Promise<boolean> {
  try {
    return (await target.remove(jobId, true)) === 1;
  } catch (error) {
    // BullMQ rejects a removal with a negative code.
    if (Number((error as { readonly code?: unknown }).code) < 0) return false;
    throw error;
  }
}

/** Returns the object through which a BullMQ queue sends its commands. */
export function queueTargetOf(queue: object): BullTarget {
  const target = ownTarget(queue);
  if (typeof target?.queue?.toKey !== "function" || typeof target.getState !== "function") {
    throw new UnsupportedBullMQError(["the queue's backend is not BullMQ's Redis backend"]);
  }
  return target;
}

/** Returns the client of a BullMQ queue, and the function that names the queue's keys. */
export function queueRedisOf(queue: object): BullTarget["queue"] {
  return queueTargetOf(queue).queue;
}

const wakeUp: ComposedScript = {
  name: "x:wake-up",
  numberOfKeys: 1,
  lua: "return redis.call('ZADD', KEYS[1], 0, '0')",
};

/** Wakes one of the workers that wait for jobs of this queue, as BullMQ does when a job is added. */
export async function wakeWorker(queue: object): Promise<void> {
  const keyed = queueRedisOf(queue);
  await runScript(await keyed.client, wakeUp, [keyed.toKey("marker")]);
}

/** Routes `job.extendLock` of this worker's jobs through `extend`. */
export function replaceExtendLock(target: BullTarget, extend: (extension: LockExtension) => Promise<number>): void {
  const original = target.extendLock.bind(target);
  target.extendLock = async (jobId, token, durationMs, client) =>
    await extend({ jobId, token, durationMs, ask: async () => await original(jobId, token, durationMs, client) });
}

/** BullMQ's record of the jobs that it is running. */
export interface TrackedJobs {
  /**
   * Returns the controller of `signal` if BullMQ made this signal for a run of the job. Undefined for any other signal.
   */
  findController(jobId: string, signal: AbortSignal): AbortController | undefined;
}

/**
 * Keeps a run tracked as long as `isLive` returns true. BullMQ renews the locks of tracked jobs, which it identifies by
 * job ID alone. It untracks a job when the fetch after the job's run has been answered. By that time the same worker
 * may already be running the job again.
 */
export function keepTracked(worker: object, isLive: (jobId: string, token: string) => boolean): TrackedJobs {
  const { lockManager } = worker as { readonly lockManager?: Partial<LockManager> };
  const { trackedJobs } = lockManager ?? {};
  const track = lockManager?.trackJob?.bind(lockManager);
  const untrack = lockManager?.untrackJob?.bind(lockManager);
  if (lockManager === undefined || track === undefined || untrack === undefined || !(trackedJobs instanceof Map)) {
    throw new UnsupportedBullMQError(["the worker tracks its jobs in an unknown way"]);
  }
  lockManager.trackJob = (jobId, ...others) => {
    const controller = track(jobId, ...others);
    // Until 5.72.0 BullMQ creates an imitation of a signal, which `fetch` and our own options refuse.
    if (controller === undefined || controller.signal instanceof AbortSignal) return controller;
    const own = new AbortController();
    const tracked = trackedJobs.get(jobId);
    if (tracked !== undefined) tracked.abortController = own;
    return own;
  };
  lockManager.untrackJob = (jobId) => {
    const tracked = trackedJobs.get(jobId);
    if (tracked === undefined || !isLive(jobId, tracked.token)) untrack(jobId);
  };
  return {
    findController(jobId, signal): AbortController | undefined {
      const controller = trackedJobs.get(jobId)?.abortController;
      return controller?.signal === signal ? controller : undefined;
    },
  };
}

interface LockManager {
  readonly trackedJobs: Map<string, { readonly token: string; abortController?: AbortController }>;
  trackJob(jobId: string, ...others: readonly unknown[]): AbortController | undefined;
  untrackJob(jobId: string): void;
}

function ownTarget(owner: object): BullTarget | undefined {
  const { backend, scripts } = owner as { backend?: BullTarget; scripts?: BullTarget };
  return backend ?? scripts;
}

export function isDecorated(name: string): name is DecoratedCommand {
  return (decorated as readonly string[]).includes(name);
}

/** The commands that are sent with BullMQ's own arguments. The end of a job is sent as a `JobEnd` instead. */
export type SingleCommand = Exclude<DecoratedCommand, "moveToFinished">;

/**
 * Returns the arguments after a command's keys: the job's ID, its lock token, the key prefix, and the lock options for
 * a fetch.
 */
export function argumentsOf(
  command: SingleCommand,
  args: readonly unknown[],
  keyCount: number,
): { readonly jobId: string; readonly token: string; readonly prefix: unknown; readonly lockOptions: unknown } {
  const argument = (index: number): unknown => args[keyCount + index - 1];
  switch (command) {
    case "moveToActive":
      return { jobId: "", token: "", prefix: argument(1), lockOptions: argument(3) };
    case "moveToDelayed":
      return { jobId: String(argument(3)), token: String(argument(4)), prefix: argument(1), lockOptions: argument(9) };
    case "moveToWaitingChildren":
      return { jobId: String(argument(4)), token: String(argument(1)), prefix: argument(5), lockOptions: undefined };
    case "retryJob":
      return { jobId: String(argument(4)), token: String(argument(5)), prefix: argument(1), lockOptions: undefined };
  }
}

/**
 * Returns the arguments of a `moveToActive` that follows another command: the same lock options, and the current time.
 */
export function fetchArguments(prefix: unknown, lockOptions: unknown, nowMs: number): unknown[] {
  return [...queueKeys(String(prefix)), prefix, nowMs, lockOptions];
}

/** The Redis keys that contain a queue's waiting jobs and delayed jobs, without the queue's prefix. */
export const STATE_KEYS: Readonly<Record<"waiting" | "delayed", readonly string[]>> = {
  waiting: ["wait", "paused", "prioritized"],
  delayed: ["delayed"],
};

/**
 * A reply without a job, and with jobs that have been due for a long time. BullMQ then starts a job that it already
 * has, and fetches again immediately.
 */
export const fetchAgainReply: readonly unknown[] = [0, TAGS.again, 0, 1];

/** Reports whether BullMQ has read `fetchAgainReply`. In this case the queue is not drained. */
export function isFetchAgainReply(data: unknown, jobId: unknown): boolean {
  return (data ?? null) === null && jobId === TAGS.again;
}

const defined = new WeakMap<object, Set<string>>();

/**
 * Runs one of our scripts. The client loads the script at its first use. The script is sent again if it did not run, or
 * if the connection was lost before the reply. All our scripts can be repeated safely.
 */
export async function runScript(
  client: BullClient,
  script: ComposedScript,
  args: readonly unknown[],
): Promise<unknown> {
  let names = defined.get(client);
  if (names === undefined) defined.set(client, (names = new Set()));
  if (!names.has(script.name)) {
    client.defineCommand(script.name, { numberOfKeys: script.numberOfKeys, lua: script.lua });
    names.add(script.name);
  }
  const { options } = client as { readonly options?: { readonly enableAutoPipelining?: boolean } };
  const isPipelined = options?.enableAutoPipelining === true;
  for (let sends = 1; ; sends += 1) {
    try {
      if (isPipelined) return await runPipelined(client, script.name, args);
      return await sendCommand(client, script.name, args);
    } catch (error) {
      if (sends === MOST_SENDS || !SENT_AGAIN.test((error as Error).message)) throw error;
    }
  }
}

type NamedCommands = Readonly<Record<string, (args: readonly unknown[]) => Promise<unknown>>>;

function sendCommand(client: BullClient, name: string, args: readonly unknown[]): Promise<unknown> {
  if (client.runCommand !== undefined) return client.runCommand(name, args);
  return (client as unknown as NamedCommands)[name]?.(args) ?? Promise.reject(new TypeError(`no command ${name}`));
}

/** How many times ioredis sends a request by default. */
const MOST_SENDS = 20;

/**
 * Errors after which a script is sent again. BullMQ would treat the error as a failure of the job, which has completed.
 * - NOSCRIPT: the server has forgotten the script, so nothing ran. Clients repeat such a request once, together with
 *   the script. ioredis leaves the script out if another request has just sent it, and the server may have forgotten it
 *   again since.
 * - The errors of node-redis for a request that lost its connection before the reply. ioredis repeats such a request
 *   itself.
 */
const SENT_AGAIN = /^NOSCRIPT\b|\b(ECONNRESET|EPIPE|ETIMEDOUT)\b|^Socket closed unexpectedly/;

/**
 * Promises to await before a script is first used on a key. The value is undefined once there is nothing left to await.
 */
const barriers = new WeakMap<object, Map<string, Promise<void> | undefined>>();

/**
 * Runs a script while ioredis' option `enableAutoPipelining` is set. ioredis then collects the commands of one turn of
 * the event loop in a pipeline. In a Cluster it collects one pipeline for each group of nodes.
 *
 * A pipeline only knows the scripts that were defined before the pipeline was created. A pipeline has ended once a
 * command in it has been answered or has failed.
 */
async function runPipelined(client: BullClient, name: string, args: readonly unknown[]): Promise<unknown> {
  let known = barriers.get(client);
  if (known === undefined) barriers.set(client, (known = new Map()));
  const first = `${name} ${String(args[0])}`;
  if (!known.has(first)) {
    const passed = sendCommand(client, "del", [`${String(args[0])}:barrier`]).then(
      () => void known.set(first, undefined),
      () => void known.delete(first),
    );
    known.set(first, passed);
  }
  const barrier = known.get(first);
  try {
    if (barrier !== undefined) await barrier;
    return await sendCommand(client, name, args);
  } catch (error) {
    // BullMQ fetches again immediately, without a limit. A pipeline is sent only between two turns of the event loop,
    // which also lets other code run.
    await nextLoopTurn();
    throw error;
  }
}
