/** One of three replicas that campaign; the leader replays the log into the queue, in chunks. Started by main.ts, or as a container. */
import { setTimeout as delay } from "node:timers/promises";
import { LeaderElection, type LeaderTerm } from "@x/leader";
import { logTo, Redlock } from "@x/redlock-core";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { pino } from "pino";
import { Cursor, DeposedError } from "./cursor.ts";
import type { Flight } from "./flight.ts";
import { serveMetrics } from "./metrics.ts";
import { electionName, leaseMs, nameFrom, queueName, readFlights, settingsFrom } from "./settings.ts";

const chunkSize = 250;
// Enough for sixty job slots, and little enough that the leader is at work during most of the run.
const fullBacklog = 1_500;
const backlogCheckMs = 50;

const settings = settingsFrom(process.env);
const name = nameFrom(process.env, "scheduler");
logTo(pino({ name }));
const flights = readFlights(settings.flights);
const redis = new Redis(settings.redisUrl, { maxRetriesPerRequest: null });
const queue = new Queue<Flight>(queueName, { connection: redis, prefix: `${settings.prefix}bull` });
const cursor = new Cursor(redis, settings.prefix);
const redlock = new Redlock(settings.lockRedisUrls, { ttl: leaseMs, maxTtl: leaseMs, keyPrefix: settings.prefix });
const election = new LeaderElection(redlock, { name: electionName, id: name, leaseDuration: leaseMs });

const stopMetrics = await serveMetrics();

const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());

// Once everything is enqueued, the leader stays in office.
await election.run(replay, { signal: stop.signal, onTaskEnd: "hold" });
await Promise.all([redlock.close(), queue.close(), stopMetrics()]);
redis.disconnect();
process.disconnect?.();

/** Enqueues what is left of the log; a chunk that a predecessor sent already is ignored, because its jobs' ids exist. */
async function replay(term: LeaderTerm): Promise<void> {
  try {
    let next = await cursor.claim(term.fencingToken, name);
    while (next < flights.length && !term.signal.aborted && term.isCurrent()) {
      const waiting = await queue.getJobCountByTypes("wait", "delayed", "prioritized");
      if (waiting >= fullBacklog) {
        await delay(backlogCheckMs);
        continue;
      }
      const chunk = flights.slice(next, next + chunkSize);
      await queue.addBulk(
        chunk.map((flight) => ({ name: "departure", data: flight, opts: { jobId: `flight-${flight.index}` } })),
      );
      next += chunk.length;
      await cursor.move(term.fencingToken, next);
    }
  } catch (error) {
    // The successor goes on from the cursor.
    if (!(error instanceof DeposedError)) throw error;
  }
}
