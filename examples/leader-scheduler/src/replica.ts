/**
 * One replica of the billing service. Start as many as you like: one of them leads and enqueues the night's work; when it dies, another
 * goes on with the next tick, and with those that were missed meanwhile.
 */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { logTo, Redlock } from "@x/redlock-core";
import { Queue } from "bullmq";
import { pino } from "pino";

logTo(pino(pino.destination(process.stderr.fd)));

const queueUrl = process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379";
const lockUrls = (process.env["LOCK_REDIS_URLS"] ?? queueUrl).split(",");
const leaseDuration = Number(process.env["LEASE_DURATION"] ?? 10_000);

const queue = new Queue("billing", { connection: { url: queueUrl } });
const redlock = new Redlock(lockUrls);
const election = new LeaderElection(redlock, { name: "billing", leaseDuration });
const scheduler = new LeaderScheduler({ election, timezone: "Europe/Berlin" });

scheduler.cron(
  "nightly-billing",
  process.env["BILLING_CRON"] ?? "0 3 * * *",
  // A leader that dies after this line has enqueued the job, one that dies before has not: the next one tries again with the
  // same id, and BullMQ adds a job of that id once.
  (tick) => queue.add("bill", { night: tick.scheduledAt, late: tick.catchup }, { jobId: tick.id }),
  { catchup: "all", catchupWindow: 12 * 3_600_000, delivery: "at-least-once", overlap: "allowAll" },
);

election.on("elected", ({ term }) => process.send?.({ elected: term }));
scheduler.start();

process.once("SIGTERM", () => {
  void (async () => {
    await scheduler.stop();
    await Promise.all([queue.close(), redlock.close()]);
    if (process.connected) process.disconnect();
  })();
});
