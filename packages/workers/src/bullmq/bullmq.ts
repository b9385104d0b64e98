/**
 * This folder knows BullMQ, and this file its scripts: which of them we build on, how they are called, and what they
 * reply. Beside it, job-end.ts has the command that ends a job, job.ts and processor.ts what BullMQ makes of these.
 * What needs no BullMQ to run is in rules/.
 *
 * What it cannot hide is when BullMQ's `Worker` calls the methods that are made for subclasses. Two classes override
 * these, and TypeScript checks that they exist:
 * - exclusive-worker.ts: `createJob`, `nextJobFromJobData`, `callProcessJob` and `extendJobLocks`.
 * - partition-worker.ts: `moveToActive`, `processJob` and `callProcessJob`.
 *
 * It relies on the following, which is checked when a worker is constructed:
 * - The six script texts are known by their SHA-1. An unknown text is refused, because our Lua reads and writes what
 *   they do.
 * - Every command of the worker and of its jobs goes through `execCommand` of the worker's backend (BullMQ 6) or
 *   `scripts` (BullMQ 5). Jobs use the same object.
 * - By `untrackJob` and `trackedJobs` of the lock manager, BullMQ knows whose locks it renews, and which
 *   signals it made.
 * - The order of the arguments comes with the texts.
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

/** The first 16 digits of the SHA-1 of each text that the contract test was run against, with its releases. */
const knownTexts: Readonly<Record<EmbeddedScript, readonly string[]>> = {
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
  /** Resolves 1, or what is less than that if the job is locked, or not there any more. */
  remove(jobId: string, removeChildren: boolean): Promise<number>;
  extendLock(jobId: string, token: string, durationMs: number, client?: unknown): Promise<number>;
}

/** One extension of a job's lock that somebody asks for. BullMQ's own renewals are of many jobs at once. */
export interface LockExtension {
  readonly jobId: string;
  readonly token: string;
  readonly durationMs: number;
  /** Asks Redis. Resolves 1, or 0 if the lock is not this token's. */
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
 * Returns the scripts that are built on. Throws `UnsupportedBullMQError` if one is missing, or its text is not a known
 * one.
 */
export function checkScripts(scripts: Readonly<Record<string, BullScript>>): BullScripts {
  const differences = embedded.flatMap((name) => {
    const script = scripts[name];
    if (script === undefined) return [`script ${name} is missing`];
    const sha1 = createHash("sha1").update(script.lua).digest("hex").slice(0, 16);
    return knownTexts[name].includes(sha1) ? [] : [`script ${name} has the unknown text ${sha1}`];
  });
  if (differences.length > 0) throw new UnsupportedBullMQError(differences);
  return scripts;
}

/** Returns what BullMQ sends its commands through, for a worker and for the jobs that it creates. */
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

/** Removes a job with its children. Resolves false for one that runs, or cannot be removed. */
export async function removeJob(target: BullTarget, jobId: string): Promise<boolean> {
  try {
    return (await target.remove(jobId, true)) === 1;
  } catch (error) {
    // BullMQ's refusals have a negative code.
    if (Number((error as { readonly code?: unknown }).code) < 0) return false;
    throw error;
  }
}

/** Returns the client of one of BullMQ's queues, and how it names its keys. */
export function keyedOf(queue: object): BullTarget["queue"] {
  const target = ownTarget(queue);
  if (target === undefined) throw new UnsupportedBullMQError(["the queue's backend is not BullMQ's Redis backend"]);
  return target.queue;
}

const wakeUp: ComposedScript = {
  name: "x:wake-up",
  numberOfKeys: 1,
  lua: "return redis.call('ZADD', KEYS[1], 0, '0')",
};

/** Wakes one of the queue's workers that wait for jobs, as BullMQ does when one is added. */
export async function wakeWorker(queue: object): Promise<void> {
  const keyed = keyedOf(queue);
  await runScript(await keyed.client, wakeUp, [keyed.toKey("marker")]);
}

/** What waits for jobs: the worker's backend in BullMQ 6, or the worker itself in BullMQ 5. */
interface Waiting {
  readonly blockingConnection?: { readonly client: Promise<WaitingClient> };
}

interface WaitingClient {
  readonly isCluster?: boolean;
  readonly status: string;
  on(event: "+node", listener: (node: { disconnect(): void }) => void): unknown;
}

/**
 * Lets the connection to a Cluster that waits for jobs end. A redirection that comes while it disconnects opens one to
 * another master, on whose end ioredis waits for ever. BullMQ's `close()` and `pause()` would not resolve then.
 */
export function disconnectLateNodes(worker: object): void {
  const { backend, blockingConnection } = worker as Waiting & { readonly backend?: Waiting };
  const watch = (client: WaitingClient): void => {
    if (client.isCluster !== true) return;
    client.on("+node", (node) => {
      if (client.status === "disconnecting") node.disconnect();
    });
  };
  // BullMQ tells of a connection that fails.
  (backend?.blockingConnection ?? blockingConnection)?.client.then(watch, () => undefined);
}

/** Lets `job.extendLock` of this worker's jobs go through `extend` from now on. */
export function replaceExtendLock(target: BullTarget, extend: (extension: LockExtension) => Promise<number>): void {
  const original = target.extendLock.bind(target);
  target.extendLock = async (jobId, token, durationMs, client) =>
    await extend({ jobId, token, durationMs, ask: async () => await original(jobId, token, durationMs, client) });
}

/** `TrackedJobs` tells what BullMQ knows of the jobs that it runs. */
export interface TrackedJobs {
  /** Returns the controller of a signal that BullMQ made for a run of this job. Signals of others have none. */
  controllerOf(jobId: string, signal: AbortSignal): AbortController | undefined;
}

/**
 * Keeps a run tracked that `isLive`. BullMQ renews the locks of the jobs that it tracks, by their ids alone. It forgets
 * a job when the fetch after its run has answered, and by then the same worker may run it again.
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
    throw new UnsupportedBullMQError(["the worker does not track its jobs as known"]);
  }
  lockManager.untrackJob = (jobId) => {
    const tracked = trackedJobs.get(jobId);
    if (tracked === undefined || !isLive(jobId, tracked.token)) untrack(jobId);
  };
  return {
    controllerOf(jobId, signal): AbortController | undefined {
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

/** The commands that are sent as BullMQ makes them. The ends of jobs are `JobEnd`s. */
export type SingleCommand = Exclude<DecoratedCommand, "moveToFinished">;

/** Returns what stands behind a command's keys: its id, token and lock options, and what it is told at the end. */
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
 * Returns the arguments with which `moveToActive` goes on after another command: the same lock options, and a new time.
 */
export function fetchArguments(prefix: unknown, lockOptions: unknown, nowMs: number): unknown[] {
  return [...queueKeys(String(prefix)), prefix, nowMs, lockOptions];
}

/** The keys of a queue in which its jobs stand that wait, or wait for their time. */
export const STATE_KEYS: Readonly<Record<"waiting" | "delayed", readonly string[]>> = {
  waiting: ["wait", "paused", "prioritized"],
  delayed: ["delayed"],
};

/**
 * The reply that nothing was taken, and that jobs are due since long ago. BullMQ then starts one that it has, and asks
 * again at once.
 */
export const askAgain: readonly unknown[] = [0, TAGS.again, 0, 1];

/** Tells whether BullMQ has read `askAgain`. The queue is not drained then. */
export function isAskAgain(data: unknown, jobId: unknown): boolean {
  return (data ?? null) === null && jobId === TAGS.again;
}

const defined = new WeakMap<object, Set<string>>();

/**
 * Runs one of our scripts. The client loads it when it is first used. The script is sent again if it did not run, or if
 * the connection was lost before the answer, which all our scripts allow for.
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

/** The number of times that ioredis sends a request by default. */
const MOST_SENDS = 20;

/**
 * Errors after which a script is sent again. BullMQ would take the error for one of the job, which has completed.
 * - NOSCRIPT: the server forgot the script, so nothing ran. Clients repeat such a request once, with the script. But
 *   ioredis leaves the script out if another request has just sent it. The server may have forgotten it again.
 * - The errors of node-redis for a request whose connection was lost before it was answered. ioredis sends such a
 *   request again by itself.
 */
const SENT_AGAIN = /^NOSCRIPT\b|\b(ECONNRESET|EPIPE|ETIMEDOUT)\b|^Socket closed unexpectedly/;

/**
 * What to wait for before a script is first used on a key. It is undefined if there is nothing to wait for any more.
 */
const barriers = new WeakMap<object, Map<string, Promise<void> | undefined>>();

/**
 * Runs a script with ioredis' option `enableAutoPipelining`. It collects the commands of a turn of the event loop in a
 * pipeline, in a Cluster those of the same nodes.
 *
 * A pipeline knows only the scripts that were defined before it was made. It has ended when a command in it was
 * answered, or failed.
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
    // BullMQ asks again at once, for ever. Only between two turns of the event loop a pipeline is sent, and others run.
    await nextLoopTurn();
    throw error;
  }
}
