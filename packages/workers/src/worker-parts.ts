/** Creates the parts of an `ExclusiveWorker` and connects them. */
import { Redlock } from "@x/redlock-core";
import { Check, InFlight, kindOf, onAbort } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import {
  checkScripts,
  installedScripts,
  keepTracked,
  refuseBroken,
  replaceExtendLock,
  targetOf,
} from "./bullmq/bullmq.ts";
import {
  abandonConnections,
  adaptBlockingTimeouts,
  ensureDisconnectEnds,
  leaveReplicas,
} from "./bullmq/connections.ts";
import { Job, type Worker } from "./bullmq/public.ts";
import { type BullScripts, composeScripts } from "./bullmq/rules/compose.ts";
import { readNode } from "./bullmq/rules/connection.ts";
import { Closing } from "./closing.ts";
import {
  JobCancelledError,
  LaneError,
  QueueUnreachableError,
  SupersededError,
  type WorkerFinding,
  WorkerMismatchError,
} from "./errors.ts";
import { eventEmitterOf } from "./events.ts";
import { Interrupts } from "./lane/interrupts.ts";
import { Lane } from "./lane/lane.ts";
import { startSweep } from "./lane/sweep.ts";
import { KeyLocks } from "./locks/key-locks.ts";
import { RunLocks } from "./locks/run-locks.ts";
import { ScriptLocks } from "./locks/script-locks.ts";
import { readStoredRules } from "./operators/operator-lane.ts";
import { formatRules } from "./operators/rules/stored-rules.ts";
import { describeSetup } from "./operators/rules/worker-setup.ts";
import { WorkerCounts } from "./operators/worker-counts.ts";
import { WorkerRegistry } from "./operators/worker-registry.ts";
import {
  type ExclusiveWorkerOptions,
  QUEUE_NAME,
  type ResolvedExclusiveOptions,
  readOptions,
  resolveOptions,
} from "./options.ts";
import { Arrivals } from "./runner/arrivals.ts";
import { JobLockRenewals } from "./runner/job-lock-renewals.ts";
import { Merging } from "./runner/merging.ts";
import { JobRunner } from "./runner/runner.ts";
import { Watchdog } from "./runner/watchdog.ts";

const SHORTEST_SWEEP_MS = 1_000;

/** Emits a process warning, which is printed even if the worker has no listeners. */
export function warn(code: string, message: string): void {
  process.emitWarning(message, { type: "ExclusiveWorkerWarning", code: `X_WORKERS_${code}` });
}

const warned = new Set<string>();

/** Emits a process warning if this process has emitted none with this code. */
export function warnOnce(code: string, message: string): void {
  if (!warned.has(code)) warn(code, message);
  warned.add(code);
}

export const PROCESSOR: Check<unknown> = new Check<unknown>({
  rule: "a function, the path or file: URL of a file that exports one, or null for jobs that are fetched by hand",
  faultOf: (given) => {
    const isOne = ["function", "string", "undefined"].includes(typeof given) || given === null || given instanceof URL;
    return isOne ? undefined : "type";
  },
});

/** The options and parts of a worker that exist before BullMQ's constructor has run. */
export interface WorkerPlan<Options> {
  readonly given: Options;
  readonly options: ResolvedExclusiveOptions;
  readonly scripts: BullScripts;
  /** Findings that need no request: about the options, and about the scripts of the installed BullMQ. */
  readonly findings: readonly WorkerFinding[];
  readonly redlock: Redlock;
  readonly isByHand: boolean;
  readonly isSandboxed: boolean;
}

/** Checks the arguments of the constructor. Throws the constructor's errors before anything is sent. */
export function planWorker<Data, Name extends string>(
  name: string,
  processor: unknown,
  unread: ExclusiveWorkerOptions<Data, Name>,
): WorkerPlan<ExclusiveWorkerOptions<Data, Name>> {
  QUEUE_NAME.of("name", name);
  PROCESSOR.of("processor", processor);
  const given = readOptions(unread);
  const options = resolveOptions(name, given);
  const isSandboxed = typeof processor !== "function";
  if (options.rules.merge !== undefined && isSandboxed) {
    throw new TypeError(`processor must be a function where whenBusy is "merge", got ${kindOf(processor)}`);
  }
  const { scripts, untested } = checkScripts(installedScripts(), options.acceptScripts);
  const findings = untested.length === 0 ? options.warnings : [...options.warnings, untestedFinding(untested)];
  const redlock = options.redlock ?? createOwnRedlock(given, options.ttl);
  return { given, options, scripts, findings, redlock, isByHand: (processor ?? null) === null, isSandboxed };
}

function untestedFinding(names: readonly string[]): WorkerFinding {
  const message = `acceptScripts accepts texts of BullMQ's scripts that @x/workers was not tested with (${names.join(", ")}): install a version of @x/workers that knows them as soon as there is one`;
  return { code: "UNTESTED_BULLMQ", severity: "warning", subjects: names, message };
}

/** Creates the worker's own `Redlock` on the queue's own Redis, which BullMQ's option `connection` names. */
function createOwnRedlock(options: ExclusiveWorkerOptions<never, never>, ttl: number): Redlock {
  const node = readNode(options.connection);
  try {
    return new Redlock(node as string, { ttl, autoExtend: true });
  } catch (error) {
    throw new TypeError("connection cannot be used for locks: give the option redlock", { cause: error });
  }
}

/** Closes the `Redlock` of a worker whose constructor has failed. */
export function closeUnused({ options, redlock }: WorkerPlan<unknown>): void {
  if (options.redlock === undefined) void redlock.close();
}

/** The worker, as its parts use it. */
export interface WorkerHost {
  readonly worker: Worker;
  readonly processor: () => unknown;
  /** Whether the worker shares its slots with the workers of other partitions. */
  readonly sharesSlots: boolean;
  /** Creates a job from its fields, as BullMQ does. */
  readonly makeJob: (fields: object, jobId: string) => Job;
}

export interface WorkerParts {
  readonly arrivals: Arrivals;
  readonly interrupts: Interrupts | undefined;
  readonly lane: Lane;
  readonly locks: KeyLocks;
  readonly registry: WorkerRegistry;
  readonly renewals: JobLockRenewals;
  readonly runner: JobRunner;
  readonly closing: Closing;
}

/** Throws `UnsupportedBullMQError` if BullMQ's worker has an unknown structure. */
export function createWorkerParts(
  plan: WorkerPlan<ExclusiveWorkerOptions<never, never>>,
  { worker, processor, sharesSlots, makeJob }: WorkerHost,
): WorkerParts {
  const { options, redlock, isByHand, isSandboxed } = plan;
  const { rules, ttl, timeout, lockDuration, recheckInterval, reentrancy } = options;
  const { clock } = protocolOf(redlock);
  const { name: queue } = worker;
  const inFlight = new InFlight();
  const counts = new WorkerCounts({
    clock,
    worker,
    hasSlots: !isByHand && !sharesSlots,
    runningJobs: () => watchdog.runCount,
  });
  const emitEvent = counts.countLost(eventEmitterOf(worker));
  const onError = (error: Error): void => void worker.emit("error", error);

  const lockParts = { redlock, inFlight, ttl, timeout };
  // Jobs that are fetched by hand have no lock from a script, see `lockJob`.
  const scriptLocks = options.redlock !== undefined || isByHand ? undefined : ScriptLocks.create(lockParts, options);
  const locks = scriptLocks ?? new KeyLocks(lockParts);
  const lane = new Lane({
    scripts: composeScripts(plan.scripts, rules, scriptLocks?.rules),
    locks,
    keyOf: options.keyOf as (job: unknown) => unknown,
    clock,
    lockDurationMs: lockDuration,
    events: {
      onParked: (jobs) => emitEvent("parked", () => ({ jobs })),
      onFault: (fault) => onError(new LaneError(queue, fault)),
      onLimited: (key, untilMs) => emitEvent("keyLimited", () => ({ key, untilMs })),
    },
  });
  const watchdog = new Watchdog(clock, (jobId) => lane.findTakenJob(jobId)?.run);
  const runLocks = new RunLocks({ redlock, locks, lane, inFlight, reentrancy, recheckInterval, emitEvent, onError });
  const onNoKeys = (jobs: number): void =>
    warn(
      "NO_KEY",
      `queue ${queue}: the first ${jobs} jobs have no key, so each ran without a lock: look at the option key, a path into job.data, or set withoutKey to "fail"`,
    );
  const arrivals = new Arrivals({ lane, redlock, options, onNoKeys });
  const renewals = new JobLockRenewals({
    clock,
    watchdog,
    limits: redlock.options,
    ttl,
    renew: async (jobIds, tokens, durationMs) => await worker.extendJobLocks(jobIds, tokens, durationMs),
    onError,
  });
  const registry = new WorkerRegistry({
    clock,
    id: worker.id,
    setup: describeSetup(
      { ...options, warnings: plan.findings },
      { lockKeyOf: (name) => protocolOf(redlock).keys.lockKey(name), nodes: redlock.nodeCount },
    ),
    rules: formatRules(rules),
    status: () => counts.status,
    report: async (id, text, lifeMs) => await lane.operate("report", id, text, lifeMs),
    exchange: async (...args) => await lane.operate("exchange", ...args),
    onFinding: (finding) => onError(new WorkerMismatchError(queue, finding)),
  });

  refuseBroken(worker);
  const target = targetOf(worker, new Job(worker, "contract", {}));
  lane.attach(target);
  ensureDisconnectEnds(worker);
  adaptBlockingTimeouts(worker);
  leaveReplicas(worker, plan.given.connection, clock);
  replaceExtendLock(target, async (extension) => await renewals.extend(extension));
  const tracked = keepTracked(worker, (jobId, token) => watchdog.findRun(jobId, token) !== undefined);

  const interrupts = isByHand ? undefined : createInterrupts(plan, worker, { lane, watchdog, onError });
  const closing = new Closing({
    clock,
    ask: async () => await readStoredRules(target.queue),
    onUnreachable: () => {
      abandonConnections(worker, plan.given.connection);
      onError(new QueueUnreachableError(queue, "so the worker is closed without waiting for its jobs"));
    },
    redlock: options.redlock === undefined ? redlock : undefined,
    inFlight,
    registry,
    locks: runLocks,
    interrupts,
    stopListening: watchForLosses(redlock, watchdog),
    stopSweeping: startSweep({ clock, everyMs: Math.max(recheckInterval, SHORTEST_SWEEP_MS), lane }),
  });
  const { merge } = rules;
  const runner = new JobRunner({
    queue,
    clock,
    lane,
    arrivals,
    locks: runLocks,
    watchdog,
    tracked,
    inFlight,
    interrupts,
    merging: merge === undefined ? undefined : new Merging({ ...merge, lane, clock, makeJob, closing, onError }),
    lockDurationMs: lockDuration,
    driftFactor: redlock.options.driftFactor,
    isSandboxed,
    processor,
    renew: async (run, durationMs) => await renewals.renewRun(run, durationMs),
    emitEvent,
  });
  void scriptLocks?.proveSameRedis((mark) => lane.operate("mark", mark));
  return { arrivals, interrupts, lane, locks, registry, renewals, runner, closing };
}

/** Marks the locks of runs as lost when the `Redlock` loses them or is closed. Returns a function that stops this. */
function watchForLosses(redlock: Redlock, watchdog: Watchdog): () => void {
  const stops = [
    redlock.on("lost", (lost) => watchdog.findRunHolding(lost)?.markKeysLost(lost.reason)),
    onAbort(protocolOf(redlock).closed, () => watchdog.markAllKeysLost()),
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

/** Creates the object that interrupts runs whose jobs were cancelled or superseded. */
function createInterrupts(
  { given, options, redlock }: WorkerPlan<ExclusiveWorkerOptions<never, never>>,
  worker: Worker,
  parts: { readonly lane: Lane; readonly watchdog: Watchdog; readonly onError: (error: Error) => void },
): Interrupts {
  const { lane, watchdog, onError } = parts;
  return new Interrupts({
    // The lane publishes its messages on the queue's own Redis, even if the locks are elsewhere.
    subscribe: async (onMessage) => {
      const own = options.redlock === undefined ? undefined : createOwnRedlock(given, options.ttl);
      const channel = `${worker.qualifiedName}:lane:notes`;
      const unsubscribe = await protocolOf(own ?? redlock).subscribe(channel, onMessage);
      return async () => {
        unsubscribe();
        await own?.close();
      };
    },
    readNotes: async (jobIds) => (await lane.operate("notes", ...jobIds)) as readonly string[],
    onNote: (jobId, note) => {
      const run = watchdog.findLatestRun(jobId);
      if (note.kind === "cancelled") run?.stop(new JobCancelledError(jobId, note.cancellation));
      else run?.stop(new SupersededError(jobId, note.key, note.by));
      return run !== undefined;
    },
    onError,
  });
}
