/**
 * This folder adapts BullMQ. This file contains the lane's knowledge of BullMQ's scripts: the known texts, how to call
 * the scripts, and how BullMQ reads a reply. job-end.ts replaces the arguments of the command that ends a job. job.ts
 * and processor.ts read how BullMQ builds jobs and calls processors. Code that runs without BullMQ is in rules/.
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
import { createHash } from "node:crypto";
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
  type EmbeddedScript,
  embedded,
} from "./rules/compose.ts";
import { queueKeys } from "./rules/queue-keys.ts";

/**
 * The first 16 digits of the SHA-1 of each script text that has passed the contract test, with the releases that
 * contain it.
 */
const KNOWN_TEXTS: Readonly<Record<EmbeddedScript, readonly string[]>> = {
  moveToActive: [
    "6c4c6de2bece2ad8", // 5.81
    "8eb09338a4d68a0d", // 6.0 to 6.2.1
    "d96ca626f1ea141b", // 6.2.2 to 6.7
  ],
  moveToFinished: [
    "11d69c87800ed307", // 5.81
    "cc54ad919f8d93ce", // 6.0 to 6.2.1
    "665f3bc3d4869f4c", // 6.2.2 to 6.3.4
    "69666e69dd5621df", // 6.3.5 to 6.7
  ],
  moveToDelayed: [
    "50f67b9ae294f395", // 5.81
    "f909a46b3c025966", // 6.0 to 6.2.1
    "d38534cd0ca4d522", // 6.2.2 to 6.3.4
    "9f83944d6edafd63", // 6.3.5 to 6.7
  ],
  moveToWaitingChildren: ["bbb6163481b4e259"], // 5.81 to 6.7
  retryJob: [
    "4500167f688cb8d0", // 5.81
    "812d06de3eaf0fb7", // 6.0 to 6.7
  ],
  promote: [
    "494df440a22d9222", // 5.81
    "1d740f19fe984343", // 6.0 to 6.7
  ],
};

/** A Redis client as BullMQ wraps it. */
export interface BullClient {
  defineCommand(name: string, definition: BullScript): void;
  runCommand(name: string, args: readonly unknown[]): Promise<unknown>;
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

/** Returns the script texts of the installed BullMQ without a deep import: BullMQ "defines" them on a collector. */
export function installedScripts(): Readonly<Record<string, BullScript>> {
  const scripts: Record<string, BullScript> = {};
  const collector = {
    defineCommand(name: string, definition: BullScript): void {
      scripts[name.split(":")[0] ?? name] = definition;
    },
  };
  const { prototype } = RedisConnection as unknown as {
    prototype: { loadCommands?: (this: { _client: typeof collector }, version: string) => void };
  };
  prototype.loadCommands?.call({ _client: collector }, "x");
  return scripts;
}

/**
 * Returns the scripts that the lane builds on. Throws `UnsupportedBullMQError` if a script is missing or its text is
 * unknown.
 */
export function checkScripts(scripts: Readonly<Record<string, BullScript>>): BullScripts {
  const differences = embedded.flatMap((name) => {
    const script = scripts[name];
    if (script === undefined) return [`script ${name} is missing`];
    const sha1 = createHash("sha1").update(script.lua).digest("hex").slice(0, 16);
    return KNOWN_TEXTS[name].includes(sha1) ? [] : [`script ${name} has the unknown text ${sha1}`];
  });
  if (differences.length > 0) throw new UnsupportedBullMQError(differences);
  return scripts;
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
  if (ownTarget(sampleJob) !== own) throw new UnsupportedBullMQError(["jobs do not use the worker's backend"]);
  return own;
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

/** Returns the client of a BullMQ queue, and the function that names the queue's keys. */
export function queueRedisOf(queue: object): BullTarget["queue"] {
  const target = ownTarget(queue);
  if (target === undefined) throw new UnsupportedBullMQError(["the queue's backend is not BullMQ's Redis backend"]);
  return target.queue;
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

/** Owner of the connection that waits for jobs: the worker's backend in BullMQ 6, or the worker itself in BullMQ 5. */
interface BlockingOwner {
  readonly blockingConnection?: { readonly client: Promise<BlockingClient> };
}

interface BlockingClient {
  readonly isCluster?: boolean;
  readonly status: string;
  on(event: "+node", listener: (node: { disconnect(): void }) => void): unknown;
}

/**
 * Ensures that the Cluster connection that waits for jobs can disconnect. A redirection that arrives during the
 * disconnect opens a connection to another master. ioredis would wait forever for this connection to end, and BullMQ's
 * `close()` and `pause()` would never resolve.
 */
export function disconnectLateNodes(worker: object): void {
  const { backend, blockingConnection } = worker as BlockingOwner & { readonly backend?: BlockingOwner };
  const watch = (client: BlockingClient): void => {
    if (client.isCluster !== true) return;
    client.on("+node", (node) => {
      if (client.status === "disconnecting") node.disconnect();
    });
  };
  // BullMQ reports a failed connection itself.
  (backend?.blockingConnection ?? blockingConnection)?.client.then(watch, () => undefined);
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
  const { lockManager } = worker as {
    readonly lockManager?: {
      readonly trackedJobs?: Map<string, { readonly token: string; readonly abortController?: AbortController }>;
      untrackJob?: (jobId: string) => void;
    };
  };
  const { trackedJobs } = lockManager ?? {};
  const untrack = lockManager?.untrackJob?.bind(lockManager);
  if (lockManager === undefined || untrack === undefined || !(trackedJobs instanceof Map)) {
    throw new UnsupportedBullMQError(["the worker tracks its jobs in an unknown way"]);
  }
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
      return await client.runCommand(script.name, args);
    } catch (error) {
      if (sends === MOST_SENDS || !SENT_AGAIN.test((error as Error).message)) throw error;
    }
  }
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
    const passed = client.runCommand("del", [`${String(args[0])}:barrier`]).then(
      () => void known.set(first, undefined),
      () => void known.delete(first),
    );
    known.set(first, passed);
  }
  const barrier = known.get(first);
  try {
    if (barrier !== undefined) await barrier;
    return await client.runCommand(name, args);
  } catch (error) {
    // BullMQ fetches again immediately, without a limit. A pipeline is sent only between two turns of the event loop,
    // which also lets other code run.
    await nextLoopTurn();
    throw error;
  }
}
