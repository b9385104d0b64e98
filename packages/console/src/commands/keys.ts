import { systemClock } from "@x/redlock-core";
import type { BusyKey, ExclusiveQueue, KeyPolicy, QueueOverview } from "@x/workers";
import { type CommandContext, confirmed, type IsGood, looking } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { operatorOf, operatorOfKey, type QueueOptions } from "../operator.ts";
import { durationText, type Tone } from "../output.ts";
import { cancelledText, countedText, countText, earlyText, policyText } from "../page/rules/words.ts";
import { readKeys } from "../reading.ts";

function why({ paused, isStalled }: BusyKey): string {
  if (paused === undefined) return isStalled ? "its worker is gone" : "";
  return paused.jobId === undefined ? `paused: ${paused.reason}` : `paused: ${paused.reason} (job ${paused.jobId})`;
}

/** Returns the partitions that may contain a job. For a queue without partitions, returns the queue. */
async function queuesOf(context: CommandContext, options: JobOptions): Promise<readonly ExclusiveQueue[]> {
  const { key } = options;
  if (key !== undefined) return [await operatorOfKey(context, { ...options, key })];
  const operator = await operatorOf(context, options);
  return "queues" in operator ? operator.queues : [operator];
}

/**
 * Returns the position of the job in `found`, or -1. Throws `ConsoleFailure` if several partitions have a job with this
 * ID.
 */
function theOne(found: readonly unknown[], jobId: string): number {
  const places = found.flatMap((each, at) => ((each ?? undefined) === undefined ? [] : [at]));
  if (places.length <= 1) return places[0] ?? -1;
  throw new ConsoleFailure(`${places.length} partitions have a job ${jobId}`, "Select the job by its key with --key.");
}

/** Says how many workers report, or since when none does. */
function workersText({ atMs, workers, active, stalled }: QueueOverview): {
  readonly text: string;
  readonly tone: Tone;
} {
  const running = workers.filter(({ isGone }) => !isGone);
  if (running.length > 0) {
    const slots = running.reduce((sum, { status }) => sum + (status?.slots ?? 0), 0);
    const of = slots === 0 ? "" : ` with ${countedText(slots, "slot")}`;
    return { text: `${countedText(running.length, "worker")}${of} reported in the last 30 s`, tone: "dim" };
  }
  if (active > stalled.length) return { text: "jobs run in workers that do not report", tone: "dim" };
  if (workers.length === 0) return { text: "no worker with keys runs", tone: "warn" };
  const newest = Math.max(...workers.map(({ reportedMs }) => reportedMs));
  return { text: `no worker with keys has reported for ${durationText(atMs - newest)}`, tone: "warn" };
}

/** Lists the keys with the longest lines. */
export async function topKeys(
  context: CommandContext,
  options: QueueOptions & { readonly limit: number },
): Promise<IsGood> {
  const { output } = context;
  const operator = await operatorOf(context, options);
  return await looking(context, async () => {
    const reading = await readKeys(operator, options.limit);
    const { counts, overview, keys: top } = reading;
    output.answer(reading, () => {
      const { parked, busyKeys, pausedKeys } = counts;
      const { runnable, active, stalled } = overview;
      const gone = stalled.length === 0 ? "" : `, ${countText(stalled.length)} had started and their workers are gone`;
      output.line(
        `${options.queue}: ${countText(active - stalled.length)} run${gone}, ${countText(runnable)} can run, ` +
          `${countText(parked)} wait for their key; busy keys: ${countText(busyKeys)}, paused: ${countText(pausedKeys)}`,
      );
      const { exclusion } = overview;
      if (exclusion.mode === "watch") output.line(`The queue is only watched: ${earlyText(exclusion)}.`, "warn");
      const workers = workersText(overview);
      output.line(workers.text, workers.tone);
      if (top.length === 0) return;
      const now = systemClock.wallMs();
      output.table(
        ["key", "waiting", "job", "since", "state"],
        top.map((key) => [
          key.key,
          countText(key.parked),
          key.holder ?? "",
          key.sinceMs === undefined ? "" : durationText(now - key.sinceMs),
          { text: why(key), tone: "warn" as const },
        ]),
      );
    });
    return true;
  });
}

/** A job ID is unique only within a partition. For a queue in partitions, the key selects the partition. */
type JobOptions = QueueOptions & { readonly jobId: string; readonly key?: string | undefined };

/** Explains why a job waits. The answer is good if the job exists. */
export async function explainJob(context: CommandContext, options: JobOptions): Promise<IsGood> {
  const { output } = context;
  const queues = await queuesOf(context, options);
  return await looking(context, async () => {
    const found = await Promise.all(queues.map(async (each) => await each.explain(options.jobId)));
    const explanation = found[theOne(found, options.jobId)];
    output.answer(explanation ?? null, () => {
      if (explanation === undefined) output.line(`there is no job ${options.jobId} in ${options.queue}`, "bad");
      else output.line(`job ${options.jobId} (${explanation.state}): ${explanation.message}`);
    });
    return explanation !== undefined;
  });
}

/** Lists the jobs of a key: the job that holds the key, and the jobs in line. */
export async function jobsOfKey(
  context: CommandContext,
  options: QueueOptions & { readonly key: string; readonly limit: number },
): Promise<IsGood> {
  const { output } = context;
  const operator = await operatorOfKey(context, options);
  return await looking(context, async () => {
    const [jobs, reading] = await Promise.all([
      operator.jobsOf(options.key, { limit: options.limit }),
      operator.readKey(options.key, { limit: 0 }),
    ]);
    output.answer(jobs, () => {
      const { parked } = jobs;
      const shown = parked.length < reading.parked ? `, of which these are the first ${countText(parked.length)}` : "";
      const holder = reading.holder === undefined ? "nobody" : `job ${reading.holder}`;
      const pause = reading.paused === undefined ? "" : `; ${reading.message}`;
      output.line(`key ${options.key}: ${holder} has it, ${countText(reading.parked)} wait${shown}${pause}`);
      for (const [index, jobId] of parked.entries()) output.line(`${index + 1}. ${jobId}`);
    });
    return true;
  });
}

/** Pauses a key, so that no further job of the key starts. The answer is good if the key was not paused before. */
export async function pauseKey(
  context: CommandContext,
  options: QueueOptions & { readonly key: string; readonly reason: string },
): Promise<IsGood> {
  const { queue, key, reason } = options;
  const operator = await operatorOfKey(context, options);
  if (!(await confirmed(context, `Start no more jobs of key ${key} in ${queue}?`))) return false;
  const isNew = await operator.pauseKey(key, reason);
  context.output.answer({ key, paused: isNew }, () => {
    context.output.line(isNew ? `key ${key} is paused` : `key ${key} was paused before`, isNew ? "good" : "warn");
  });
  return isNew;
}

/** Ends a pause, or the halt after a failed job. The answer is good if the key was paused. */
export async function resumeKey(
  context: CommandContext,
  options: QueueOptions & { readonly key: string },
): Promise<IsGood> {
  const { queue, key } = options;
  const operator = await operatorOfKey(context, options);
  if (!(await confirmed(context, `Resume key ${key} in ${queue}? The job that halted it is skipped unless retried.`))) {
    return false;
  }
  const wasPaused = await operator.resumeKey(key);
  context.output.answer({ key, resumed: wasPaused }, () => {
    context.output.line(wasPaused ? `key ${key} goes on` : `key ${key} was not paused`, wasPaused ? "good" : "warn");
  });
  return wasPaused;
}

/**
 * Removes the jobs that wait for a key. The job that holds the key continues. The answer is good if a job was removed.
 */
export async function dropKey(
  context: CommandContext,
  options: QueueOptions & { readonly key: string },
): Promise<IsGood> {
  const { queue, key } = options;
  const { output } = context;
  const operator = await operatorOfKey(context, options);
  const { parked } = await operator.jobsOf(key, { limit: MOST_DROPPED });
  if (parked.length === 0) {
    output.answer({ key, dropped: 0 }, () => output.line(`no job waits for key ${key}`, "warn"));
    return false;
  }
  if (!(await confirmed(context, `Remove the ${parked.length} jobs of ${queue} that wait for key ${key}, for good?`))) {
    return false;
  }
  let dropped = 0;
  // A job whose turn has come in the meantime runs and is not removed.
  for (const id of parked) dropped += await operator.remove(id);
  output.answer({ key, dropped }, () => output.line(`${dropped} jobs of key ${key} are removed`, "good"));
  return dropped > 0;
}

/** The most jobs that one command removes. Bounds the command's load on Redis. */
const MOST_DROPPED = 10_000;

/**
 * Cancels a job, or with a key and without a job ID all jobs of the key. The answer is good if a job was cancelled.
 */
export async function cancelJobs(
  context: CommandContext,
  options: Omit<JobOptions, "jobId"> & {
    readonly jobId: string | undefined;
    readonly reason: string;
    readonly remove: boolean;
  },
): Promise<IsGood> {
  const { queue, jobId, key, reason, remove } = options;
  const { output } = context;
  const end = remove ? "Jobs that do not run are removed." : "The jobs fail without a retry.";
  if (jobId === undefined) {
    if (key === undefined) throw new ConsoleFailure("Name a job, or with --key all jobs of a key.");
    const operator = await operatorOfKey(context, { ...options, key });
    if (!(await confirmed(context, `Cancel all jobs of key ${key} in ${queue}? ${end}`))) return false;
    const { running, parked, waiting } = await operator.cancelKey(key, reason, { remove });
    const total = running + parked + waiting;
    output.answer({ key, running, parked, waiting }, () =>
      output.line(
        `${countedText(total, "job")} of key ${key} cancelled: ${countText(running)} running, ` +
          `${countText(parked)} parked, ${countText(waiting)} waiting`,
        total > 0 ? "good" : "warn",
      ),
    );
    return total > 0;
  }
  const queues = await queuesOf(context, { ...options, jobId });
  const known = await Promise.all(queues.map(async (each) => await each.explain(jobId)));
  const owner = queues[theOne(known, jobId)];
  if (owner !== undefined && !(await confirmed(context, `Cancel job ${jobId} of ${queue}? ${end}`))) return false;
  const found = (await owner?.cancel(jobId, reason, { remove })) ?? "unknown";
  output.answer({ jobId, found }, () =>
    output.line(cancelledText(jobId, found), found === "unknown" ? "warn" : "good"),
  );
  return found !== "unknown";
}

/** Retries a failed job. The answer is good if the job exists and had failed. */
export async function retryJob(context: CommandContext, options: JobOptions): Promise<IsGood> {
  const { queue, jobId } = options;
  const { output } = context;
  const queues = await queuesOf(context, options);
  const found = await Promise.all(queues.map(async (each) => await each.getJob(jobId)));
  const job = found[theOne(found, jobId)];
  const state = job === undefined ? "unknown" : await job.getState();
  if (job === undefined || state !== "failed") {
    output.answer({ jobId, retried: false, state }, () =>
      output.line(
        job === undefined ? `there is no job ${jobId} in ${queue}` : `job ${jobId} has not failed: it is ${state}`,
        "warn",
      ),
    );
    return false;
  }
  if (!(await confirmed(context, `Run job ${jobId} of ${queue} again?`))) return false;
  await job.retry("failed");
  output.answer({ jobId, retried: true }, () => output.line(`job ${jobId} is to run again`, "good"));
  return true;
}

/** Lists the keys with limits of their own. */
export async function listPolicies(
  context: CommandContext,
  options: QueueOptions & { readonly limit: number },
): Promise<IsGood> {
  const { output } = context;
  const operator = await operatorOf(context, options);
  return await looking(context, async () => {
    const policies = await operator.listKeyPolicies({ limit: options.limit });
    output.answer(Object.fromEntries(policies), () => {
      if (policies.size === 0) return output.line(`${options.queue}: no key has limits of its own`);
      output.table(
        ["key", "policy"],
        [...policies].map(([key, policy]) => [key, policyText(policy)]),
      );
    });
    return true;
  });
}

/** Limits to set for a key, or the order to remove them. */
export type PolicyChange = KeyPolicy & { readonly remove?: boolean | undefined };

/**
 * Shows, changes or removes the policy of a key, which replaces the workers' options. The answer is good if the key has
 * or had a policy.
 */
export async function policyOfKey(
  context: CommandContext,
  { queue, key, prefix, remove = false, ...given }: QueueOptions & PolicyChange & { readonly key: string },
): Promise<IsGood> {
  const { output } = context;
  const operator = await operatorOfKey(context, { queue, prefix, key });
  const isGiven = Object.values(given).some((value) => value !== undefined);
  if (remove && isGiven) throw new ConsoleFailure("--remove cannot be combined with a limit.");
  if (!remove && !isGiven) {
    return await looking(context, async () => {
      const policy = await operator.getKeyPolicy(key);
      output.answer(policy ?? null, () => output.line(`key ${key}: ${policyText(policy)}`));
      return policy !== undefined;
    });
  }
  const what = remove ? "as the workers' options say" : policyText(given);
  if (!(await confirmed(context, `From now on, key ${key} of ${queue}: ${what}?`))) return false;
  const isGood = remove ? await operator.removeKeyPolicy(key) : true;
  if (!remove) await setPolicy(operator, key, given);
  output.answer({ key, policy: remove ? null : given, changed: isGood }, () =>
    output.line(isGood ? `key ${key}: ${what}` : `key ${key} had no policy`, isGood ? "good" : "warn"),
  );
  return isGood;
}

async function setPolicy(operator: ExclusiveQueue, key: string, policy: KeyPolicy): Promise<void> {
  try {
    await operator.setKeyPolicy(key, policy);
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) throw new ConsoleFailure(`${error.message}.`);
    throw error;
  }
}

/**
 * Shows the options of a queue's workers. The answer is good if a worker exists and all workers have the same options.
 */
export async function keyPolicy(context: CommandContext, options: QueueOptions): Promise<IsGood> {
  const { output } = context;
  const operator = await operatorOf(context, options);
  return await looking(context, async () => {
    const workers = await operator.setups();
    output.answer(workers, () => {
      if (workers.length === 0) return output.line(`${options.queue}: no worker with keys runs`, "warn");
      output.table(
        ["worker", "key", "on failure", "per key", "locks"],
        workers.map(({ at, key, onFailure, perKey, locks, nodes }) => [
          at,
          key ?? "a function",
          onFailure,
          perKey ?? "",
          `${locks === null ? "by a function" : `${locks}…`} on ${nodes} ${nodes === 1 ? "node" : "nodes"}`,
        ]),
        { 3: 40 },
      );
    });
    const ways = new Set(workers.map((setup) => JSON.stringify({ ...setup, at: "" })));
    return ways.size === 1;
  });
}
