/**
 * Moves a queue to more or fewer partitions: the old division is drained before the new one starts.
 *
 * Once the move is announced, producers of the new division can add jobs, which wait. Producers of the old division are
 * rejected. When all jobs of the old division have ended, the workers of the new division start. Jobs of a key
 * therefore keep their order, and never run at the same time.
 *
 * Not guaranteed: that the check rejects a producer that was frozen between the check and its `add`. The job of such a
 * producer stays in the old division, and the next call of `moveFrom` counts it.
 */
import type { Clock } from "@x/redlock-core";
import { abortSignal, callback, Schema, sleep } from "@x/redlock-core/kit";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import { type ConnectionOptions, Queue, type RepeatOptions } from "../bullmq/public.ts";
import { DivisionMismatchError } from "../errors.ts";
import { Door, KNOWN_AFTER_MS, type Layout, LayoutRecord } from "./layout.ts";
import { type Division, divisionOf } from "./options.ts";
import { PARTITIONS } from "./rules/partition.ts";

export interface MoveOptions {
  /**
   * Servers of the old partitions, beginning with the server of the new partitions' record. Default: the new
   * partitions' servers.
   */
  readonly connection?: ConnectionOptions | readonly ConnectionOptions[] | undefined;
  /**
   * Ends the wait. The move remains announced, and the next call continues it. If the signal has already aborted, no
   * move begins.
   */
  readonly signal?: AbortSignal | undefined;
  /** Called every second with the number of jobs in the old division that have not ended. */
  readonly onProgress?: ((left: number) => void) | undefined;
}

interface NewDivision {
  readonly clock: Clock;
  readonly record: LayoutRecord;
  readonly doors: readonly Door[];
  /** Adds a job scheduler of the old division to the new one, unless the new one already has it. */
  readonly addScheduler: (scheduler: Scheduler) => Promise<void>;
  /** Called with connection errors of the old division. */
  readonly onError: (error: Error) => void;
}

export type Scheduler = Awaited<ReturnType<Queue["getJobSchedulers"]>>[number];

const OPTIONS = new Schema({
  connection: { rule: "a connection", fallback: undefined, of: (_, given) => given as MoveOptions["connection"] },
  signal: abortSignal.optional(),
  onProgress: callback<(left: number) => void>().optional(),
});
const COUNT_EVERY_MS = 1_000;
const ENDED: ReadonlySet<string> = new Set(["completed", "failed"]);

/**
 * Moves a queue to the division `to`. Resolves with 0, or with the number of jobs in the old division if an earlier
 * call has already finished the move.
 * @throws TypeError, RangeError for invalid options, before anything is sent.
 */
export async function moveQueue(
  to: Division,
  from: number,
  { clock, record, doors, addScheduler, onError }: NewDivision,
  given: MoveOptions,
): Promise<number> {
  PARTITIONS.of("from", from);
  if (from === to.partitions) {
    throw new RangeError(`from must differ from partitions (${from}), got ${from}`);
  }
  const { connection = to.servers, signal, onProgress } = OPTIONS.resolve(given);
  const old = divisionOf(to.name, { partitions: from, connection, prefix: to.prefix });
  signal?.throwIfAborted();
  const announced = await record.run("announce", from);
  // A move away from this division that has been announced must be finished first.
  const isMoved = announced.partitions === to.partitions && announced.next === undefined;
  if (!isMoved && (announced.partitions !== from || announced.next !== to.partitions)) {
    throw new DivisionMismatchError(
      to.name,
      `moveFrom(${from}) was called, but ${explainRefusal(announced, to.partitions)}`,
    );
  }
  const queues = old.places.map(({ queue, connection }) => new Queue(queue, { connection, prefix: to.prefix }));
  for (const queue of queues) queue.on("error", onError);
  try {
    if (!isMoved) {
      await checkOld(new LayoutRecord(old, queueRedisOf(queues[0] as Queue)), old, announced);
      // Opens the partitions of this division, which an earlier move may have closed.
      await Promise.all(doors.map(async (door) => await door.open()));
    }
    await Promise.all(queues.map(async (queue) => await new Door(queueRedisOf(queue), clock).close(to.partitions)));
    // Waits until every producer knows of the closed partitions, and all jobs that were sent before have arrived.
    await sleep(clock, 2 * KNOWN_AFTER_MS, signal);
    await Promise.all(queues.map(async (queue) => await moveSchedulers(queue, addScheduler)));
    for (;;) {
      const left = (await Promise.all(queues.map(jobsLeft))).reduce((sum, count) => sum + count, 0);
      onProgress?.(left);
      if (left === 0 || isMoved) {
        if (!isMoved) await record.run("moved", from);
        return left;
      }
      await sleep(clock, COUNT_EVERY_MS, signal);
    }
  } finally {
    await Promise.all(queues.map(async (queue) => await queue.close()));
  }
}

/** Returns the queue's actual layout and the next step, as text. */
function explainRefusal({ partitions, next }: Layout, to: number): string {
  if (partitions === 0) return "the queue has no partitions yet: add jobs, there is nothing to move";
  const has = `the queue has ${partitions} partitions`;
  if (next === undefined || next === to) return `${has}: call moveFrom(${partitions})`;
  return `${has} and is being moved to ${next}: finish that first, with moveFrom(${partitions}) where partitions is ${next}`;
}

/** Throws if `connection` does not name the servers of the old division. Jobs on other servers would be overlooked. */
async function checkOld(record: LayoutRecord, old: Division, announced: Layout): Promise<void> {
  const { servers } = old;
  if (announced.servers !== servers.length) {
    throw new RangeError(
      `connection must have the ${announced.servers} servers of the old partitions, got ${servers.length}`,
    );
  }
  const { partitions, next } = await record.run("read");
  if (partitions !== announced.partitions || next !== announced.next) {
    throw new RangeError(`connection must begin with the server on which the new partitions begin, got another one`);
  }
}

async function jobsLeft(queue: Queue): Promise<number> {
  const counts = Object.entries(await queue.getJobCounts());
  return counts.reduce((sum, [state, count]) => (ENDED.has(state) ? sum : sum + count), 0);
}

/**
 * Returns the scheduler's remaining schedule: the same times, and the remaining number of jobs. Undefined if no job
 * remains.
 */
export function repeatOf(scheduler: Scheduler): Omit<RepeatOptions, "key"> | undefined {
  const { pattern, every, tz, endDate, next, offset = 0, iterationCount = 0 } = scheduler;
  const limit = scheduler.limit === undefined ? undefined : scheduler.limit - iterationCount;
  if (limit !== undefined && limit <= 0) return undefined;
  // Without an offset or a start date, BullMQ starts an interval immediately.
  const phase = every === undefined ? {} : offset > 0 ? { offset } : { startDate: next };
  const repeat = { pattern, every, tz, startDate: scheduler.startDate, endDate, limit, ...phase };
  return Object.fromEntries(Object.entries(repeat).filter(([, value]) => (value ?? undefined) !== undefined));
}

/** Adds each scheduler before removing the old one. A scheduler may fire twice in that moment, but none is lost. */
async function moveSchedulers(queue: Queue, addScheduler: NewDivision["addScheduler"]): Promise<void> {
  for (const scheduler of await queue.getJobSchedulers()) {
    await addScheduler(scheduler);
    await queue.removeJobScheduler(scheduler.key);
  }
}
