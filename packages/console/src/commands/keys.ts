import { systemClock } from "@x/redlock-core";
import { type BusyKey, ExclusiveWorker } from "@x/workers";
import { type Command, confirmed, type IsGood, looking } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { durationText } from "../output.ts";

export interface QueueOptions {
  readonly queue: string;
  /** BullMQ's prefix. */
  readonly prefix: string;
}

/** Opens a worker that only asks: it takes no job, and is not one of the queue's workers. */
async function operatorOf({ connections }: Command, { queue, prefix }: QueueOptions): Promise<ExclusiveWorker> {
  const connection = await connections.queueRedis();
  if ((await connection.exists(`${prefix}:${queue}:meta`)) === 0) {
    throw new ConsoleFailure(
      `there is no queue ${JSON.stringify(queue)} with the prefix ${JSON.stringify(prefix)}`,
      "Name BullMQ's prefix with --prefix, and the queue's Redis with --redis.",
    );
  }
  const worker = new ExclusiveWorker(queue, null, { connection, prefix, autorun: false, key: () => undefined });
  worker.on("error", () => undefined);
  connections.defer(() => worker.close());
  return worker;
}

function why({ paused }: BusyKey): string {
  if (paused === undefined) return "";
  return paused.jobId === undefined ? `paused: ${paused.reason}` : `paused: ${paused.reason} (job ${paused.jobId})`;
}

/** Lists the keys with the longest lines. */
export async function topKeys(command: Command, options: QueueOptions & { readonly limit: number }): Promise<IsGood> {
  const { output } = command;
  const worker = await operatorOf(command, options);
  return await looking(command, async () => {
    const [counts, keys] = await Promise.all([worker.counts(), worker.listKeys({ limit: 100_000 })]);
    const top = keys.toSorted((one, other) => other.parked - one.parked).slice(0, options.limit);
    output.answer({ counts, keys: top }, () => {
      const { runnable, active, parked, busyKeys, pausedKeys } = counts;
      output.line(
        `${options.queue}: ${active} run, ${runnable} can run, ${parked} wait for their key; ` +
          `${busyKeys} keys are busy, ${pausedKeys} paused`,
      );
      if (top.length === 0) return;
      const now = systemClock.wallMs();
      output.table(
        ["key", "waiting", "job", "since", "state"],
        top.map((key) => [
          key.key,
          String(key.parked),
          key.holder ?? "",
          key.since === undefined ? "" : durationText(now - key.since),
          key.paused === undefined ? "" : { text: why(key), tone: "warn" as const },
        ]),
      );
    });
    return true;
  });
}

/** Says why a job waits. The answer is good if there is such a job. */
export async function explainJob(
  command: Command,
  options: QueueOptions & { readonly jobId: string },
): Promise<IsGood> {
  const { output } = command;
  const worker = await operatorOf(command, options);
  return await looking(command, async () => {
    const explanation = await worker.explain(options.jobId);
    output.answer(explanation ?? null, () => {
      if (explanation === undefined) output.line(`there is no job ${options.jobId} in ${options.queue}`, "bad");
      else output.line(`job ${options.jobId} (${explanation.state}): ${explanation.message}`);
    });
    return explanation !== undefined;
  });
}

/** Lists the jobs of a key: who has it, and who waits for it. */
export async function jobsOfKey(
  command: Command,
  options: QueueOptions & { readonly key: string; readonly limit: number },
): Promise<IsGood> {
  const { output } = command;
  const worker = await operatorOf(command, options);
  return await looking(command, async () => {
    const jobs = await worker.jobsOf(options.key, { limit: options.limit });
    output.answer(jobs, () => {
      const holder = jobs.holder === undefined ? "nobody" : `job ${jobs.holder}`;
      output.line(`key ${options.key}: ${holder} has it, ${jobs.parked.length} wait`);
      for (const [index, jobId] of jobs.parked.entries()) output.line(`${index + 1}. ${jobId}`);
    });
    return true;
  });
}

/** Starts nothing of a key any more. The answer is good if it was not paused before. */
export async function pauseKey(
  command: Command,
  options: QueueOptions & { readonly key: string; readonly reason: string },
): Promise<IsGood> {
  const { queue, key, reason } = options;
  const worker = await operatorOf(command, options);
  if (!(await confirmed(command, `Start no more jobs of key ${key} in ${queue}?`))) return false;
  const isNew = await worker.pauseKey(key, reason);
  command.output.answer({ key, paused: isNew }, () => {
    command.output.line(isNew ? `key ${key} is paused` : `key ${key} was paused before`, isNew ? "good" : "warn");
  });
  return isNew;
}

/** Ends a pause, and the halt after a failed job. The answer is good if the key was paused. */
export async function resumeKey(command: Command, options: QueueOptions & { readonly key: string }): Promise<IsGood> {
  const { queue, key } = options;
  const worker = await operatorOf(command, options);
  if (!(await confirmed(command, `Resume key ${key} in ${queue}? The job that halted it is skipped unless retried.`))) {
    return false;
  }
  const wasPaused = await worker.resumeKey(key);
  command.output.answer({ key, resumed: wasPaused }, () => {
    command.output.line(wasPaused ? `key ${key} goes on` : `key ${key} was not paused`, wasPaused ? "good" : "warn");
  });
  return wasPaused;
}
