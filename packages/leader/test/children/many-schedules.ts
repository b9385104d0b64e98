/** Adds thousands of schedules with different expressions, leads, and reports their cost to its parent. Argument: path of a node. */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type Schedule } from "@x/leader/scheduler";
import { until } from "@x/test-support";
import { connect } from "../support/redis.ts";

const COUNT = 4_000;
/** These schedules exist before the measurement, so that their code is warm and maps have room. */
const FIRST = 1_000;
/** Number of parsed expressions in the cache, 83 kB each, however many schedules exist. */
const KEPT = 16;
// A loaded machine answers requests with thousands of lines slowly.
const redlock = connect([process.argv[2] ?? ""], { maxTtl: 30_000, nodeTimeout: 5_000 });
const scheduler = new LeaderScheduler({
  election: new LeaderElection(redlock, { name: "many", leaseDuration: 30_000 }),
});
const nothing = (): void => undefined;

function add(first: number, count: number, prefix = "s"): readonly Schedule[] {
  const added: Schedule[] = [];
  for (let at = first; at < first + count; at += 1) {
    const [minute, hour, day] = [at % 60, Math.floor(at / 60) % 24, (Math.floor(at / 1_440) % 28) + 1];
    added.push(scheduler.cron(`${prefix}${at}`, `${minute} ${hour} ${day} * *`, nothing));
  }
  return added;
}

function heapBytes(): number {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

// These first schedules pay the fixed costs.
add(0, FIRST);
// An expression is parsed with each use, until the cache keeps it.
for (const again of ["a", "b", "c"]) for (const used of add(FIRST - KEPT, KEPT, again)) used.next(new Date());
const before = heapBytes();
add(FIRST, COUNT);
const added = heapBytes();
scheduler.start();
const isLed = async (): Promise<boolean> => {
  const [info] = await scheduler.list();
  return info?.owner?.self === true && info.last === null;
};
await until(isLed);
// The first states are on their way to the node, as one text.
let led = Number.POSITIVE_INFINITY;
for (let look = 0; look < 10; look += 1) {
  led = Math.min(led, heapBytes());
  await new Promise((resolve) => setTimeout(resolve, 50));
}
const perSchedule = (added - before) / COUNT;
// All schedules are led.
process.send?.({ perSchedule, perLed: perSchedule + (led - added) / (FIRST + KEPT + COUNT) });
await scheduler.stop();
await redlock.close();
process.disconnect();
