/**
 * More partitions, or fewer: the queue is drained in its old division, and goes on in the new one.
 *
 * Producers of the new division may add from the moment at which the move is announced; their jobs wait. Those of the
 * old one are refused. When every job of the old division has ended, the workers of the new one begin. So jobs of a key
 * keep their order, and no two of them run at once.
 *
 * Not guaranteed: that a producer is refused which was frozen between its look at the partition and its `add`. Its job
 * stays in the old division, and the next call of `moveFrom` counts it.
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
  /** The servers of the old partitions, beginning with the same one. Default: where the new ones are. */
  readonly connection?: ConnectionOptions | readonly ConnectionOptions[] | undefined;
  /** Ends the waiting. The move stays announced, and the next call goes on with it. If it has aborted, none begins. */
  readonly signal?: AbortSignal | undefined;
  /** Is called every second with the number of jobs that the old division still has. */
  readonly onProgress?: ((left: number) => void) | undefined;
}

interface NewDivision {
  readonly clock: Clock;
  readonly record: LayoutRecord;
  readonly doors: readonly Door[];
  /** Adds a job scheduler of the old division to the new one, unless that has it already. */
  readonly addScheduler: (scheduler: Scheduler) => Promise<void>;
  /** Called with the errors of the connections to the old division. */
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
 * Moves a queue to the division `to`, and resolves with the number of jobs that the old one has left: 0.
 * @throws TypeError, RangeError for bad options, before anything is sent.
 */
export async function moveQueue(
  to: Division,
  from: number,
  { clock, record, doors, addScheduler, onError }: NewDivision,
  given: MoveOptions,
): Promise<number> {
  PARTITIONS.of("from", from);
  if (from === to.partitions) {
    throw new RangeError(`from must be another number than partitions (${from}), got ${from}`);
  }
  const { connection = to.servers, signal, onProgress } = OPTIONS.resolve(given);
  const old = divisionOf(to.name, { partitions: from, connection, prefix: to.prefix });
  signal?.throwIfAborted();
  const announced = await record.ask("announce", from);
  // Where it is about to be moved away again, that is to be finished first.
  const isMoved = announced.partitions === to.partitions && announced.next === undefined;
  if (!isMoved && (announced.partitions !== from || announced.next !== to.partitions)) {
    throw new DivisionMismatchError(to.name, `moveFrom(${from}) was called, but ${whyNot(announced, to.partitions)}`);
  }
  const queues = old.places.map(({ queue, connection }) => new Queue(queue, { connection, prefix: to.prefix }));
  for (const queue of queues) queue.on("error", onError);
  try {
    if (!isMoved) {
      await checkOld(new LayoutRecord(old, queueRedisOf(queues[0] as Queue)), old, announced);
      // An earlier move may have led away from this division.
      await Promise.all(doors.map(async (door) => await door.open()));
    }
    await Promise.all(queues.map(async (queue) => await new Door(queueRedisOf(queue), clock).close(to.partitions)));
    // Until every producer knows, and what it had sent is there.
    await sleep(clock, 2 * KNOWN_AFTER_MS, signal);
    await Promise.all(queues.map(async (queue) => await moveSchedulers(queue, addScheduler)));
    for (;;) {
      const left = (await Promise.all(queues.map(jobsLeft))).reduce((sum, count) => sum + count, 0);
      onProgress?.(left);
      if (left === 0 || isMoved) {
        if (!isMoved) await record.ask("moved", from);
        return left;
      }
      await sleep(clock, COUNT_EVERY_MS, signal);
    }
  } finally {
    await Promise.all(queues.map(async (queue) => await queue.close()));
  }
}

/** Returns what a queue has instead, and what to do about it. */
function whyNot({ partitions, next }: Layout, to: number): string {
  if (partitions === 0) return "the queue has no partitions yet: add jobs, there is nothing to move";
  const has = `the queue has ${partitions} partitions`;
  if (next === undefined || next === to) return `${has}: call moveFrom(${partitions})`;
  return `${has} and is being moved to ${next}: finish that first, with moveFrom(${partitions}) where partitions is ${next}`;
}

/** Throws unless the old division has the servers that its processes have: jobs there would not be seen. */
async function checkOld(record: LayoutRecord, old: Division, announced: Layout): Promise<void> {
  const { servers } = old;
  if (announced.servers !== servers.length) {
    throw new RangeError(
      `connection must have the ${announced.servers} servers of the old partitions, got ${servers.length}`,
    );
  }
  const { partitions, next } = await record.ask("read");
  if (partitions !== announced.partitions || next !== announced.next) {
    throw new RangeError(`connection must begin with the server on which the new partitions begin, got another one`);
  }
}

async function jobsLeft(queue: Queue): Promise<number> {
  const counts = Object.entries(await queue.getJobCounts());
  return counts.reduce((sum, [state, count]) => (ENDED.has(state) ? sum : sum + count), 0);
}

/** Returns how the scheduler goes on: at the same times, as often as is left. It is undefined if none is left. */
export function repeatOf(scheduler: Scheduler): Omit<RepeatOptions, "key"> | undefined {
  const { pattern, every, tz, endDate, next, offset = 0, iterationCount = 0 } = scheduler;
  const limit = scheduler.limit === undefined ? undefined : scheduler.limit - iterationCount;
  if (limit !== undefined && limit <= 0) return undefined;
  // Without either, BullMQ begins an interval at once.
  const phase = every === undefined ? {} : offset > 0 ? { offset } : { startDate: next };
  const repeat = { pattern, every, tz, startDate: scheduler.startDate, endDate, limit, ...phase };
  return Object.fromEntries(Object.entries(repeat).filter(([, value]) => (value ?? undefined) !== undefined));
}

/** Adds each scheduler before it removes it: one that fires in that moment may fire twice, and none is lost. */
async function moveSchedulers(queue: Queue, addScheduler: NewDivision["addScheduler"]): Promise<void> {
  for (const scheduler of await queue.getJobSchedulers()) {
    await addScheduler(scheduler);
    await queue.removeJobScheduler(scheduler.key);
  }
}
