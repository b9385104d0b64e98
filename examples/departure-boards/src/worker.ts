/** One of three worker processes: puts each flight on its airport's board. Started by main.ts, or as a container. */
import { setTimeout as delay } from "node:timers/promises";
import { logTo, Redlock } from "@x/redlock-core";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { Worker } from "bullmq";
import { Redis } from "ioredis";
import { pino } from "pino";
import { depart } from "./board.ts";
import { BoardStore } from "./board-store.ts";
import type { Flight } from "./flight.ts";
import type { EventKind } from "./history.ts";
import { serveMetrics } from "./metrics.ts";
import { leaseMs, nameFrom, queueName, settingsFrom, stalledIntervalMs } from "./settings.ts";

const concurrency = 20;

const settings = settingsFrom(process.env);
const name = nameFrom(process.env, "worker");
logTo(pino({ name }));
const redis = new Redis(settings.redisUrl, { maxRetriesPerRequest: null });
const store = new BoardStore(redis, settings.prefix);
let runCount = 0;

const options = {
  connection: { url: settings.redisUrl, maxRetriesPerRequest: null },
  prefix: `${settings.prefix}bull`,
  concurrency,
  lockDuration: leaseMs,
  stalledInterval: stalledIntervalMs,
  // A job may lose its worker to a SIGKILL and the next one to a SIGSTOP.
  maxStalledCount: 5,
};

const redlock = new Redlock(settings.lockRedisUrls, { ttl: leaseMs, maxTtl: leaseMs, keyPrefix: settings.prefix });
const worker = settings.naive
  ? new Worker<Flight, EventKind>(queueName, (job) => putOnBoard(job.data, undefined), options)
  : new ExclusiveWorker<Flight, EventKind>(
      queueName,
      (job, _token, _signal, lock) => putOnBoard(job.data, lock.fencingToken),
      {
        ...options,
        redlock,
        key: (job) => `airport:${job.data.origin}`,
      },
    );
// Jobs that fail are run again or end up in the report; connection errors heal.
worker.on("error", (error) => process.send?.({ error: String(error) }));

// One process of a fleet is enough to ask for the queue's gauges, but no container knows that it is the one.
const queue = new ExclusiveQueue(queueName, { connection: options.connection, prefix: options.prefix });
queue.on("error", () => undefined);
const stopMetrics = await serveMetrics(settings.naive ? [] : [queue]);

process.once("SIGTERM", () => void end());

/**
 * Read, compute, write: two of these at once on one airport lose an update. The signal is left alone on purpose, so that a run that lost
 * its lock writes late, as code without a signal does, and the store has to refuse it.
 */
async function putOnBoard(flight: Flight, fencingToken: number | undefined): Promise<EventKind> {
  const run = { id: `${name}.${process.pid}.${runCount++}`, worker: name, fencingToken };
  const board = await store.begin(flight, run);
  const next = depart(board, flight);
  await delay(settings.pauseMs);
  return await store.write(flight, run, next);
}

async function end(): Promise<void> {
  await worker.close();
  await redlock.close();
  redis.disconnect();
  await stopMetrics();
  await queue.close();
  process.disconnect?.();
}
