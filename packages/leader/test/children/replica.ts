/** A scheduler in a process of its own. Notes every run in a file before anything else can happen. Argument: JSON of `ReplicaArgs`. */
import { appendFileSync } from "node:fs";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type Tick } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import type { ReplicaArgs, Run } from "../support/runs.ts";

const args = JSON.parse(process.argv[2] ?? "{}") as ReplicaArgs;
const redlock = new Redlock(
  args.paths.map((path) => ({ path })),
  { ttl: args.maxTtl, maxTtl: args.maxTtl, nodeTimeout: 200, quarantine: args.paths.length >= 3 },
);
const election = new LeaderElection(redlock, {
  name: "chaos",
  id: args.id,
  ...args.durations,
  cooldown: { initial: 20 },
});
const scheduler = new LeaderScheduler({ election });

function note(tick: Tick, event: Run["event"]): void {
  const run: Run = {
    event,
    by: args.id,
    schedule: tick.schedule,
    id: tick.id,
    atMs: tick.scheduledAt.getTime(),
    attempt: tick.attempt,
    term: tick.term.term,
    catchup: tick.catchup,
  };
  appendFileSync(args.file, `${JSON.stringify(run)}\n`);
}

const each = { catchup: "all", catchupWindow: 60_000, overlap: "allowAll", maxCatchup: 1_000 } as const;
scheduler.every("once", args.everyMs, (tick) => note(tick, "start"), each);
scheduler.every("least", args.everyMs, (tick) => note(tick, "start"), { ...each, delivery: "at-least-once" });
scheduler.handle("data", (tick) => note(tick, "start"));
const stored = { kind: "data", every: args.everyMs, data: { by: args.id } } as const;
/** Like a deployment, until the nodes have the set. */
const define = (): void =>
  void scheduler
    .reconcile([
      { ...stored, name: "data-once", options: each },
      { ...stored, name: "data-least", options: { ...each, delivery: "at-least-once" } },
    ])
    .catch(() => setTimeout(define, 100).unref());
if (args.slowMs === undefined) define();
else {
  const slowMs = args.slowMs;
  scheduler.every(
    "slow",
    slowMs * 4,
    async (tick) => {
      note(tick, "start");
      await new Promise((resolve) => setTimeout(resolve, slowMs));
      note(tick, "end");
    },
    { ...each, delivery: "at-least-once" },
  );
}

election.on("elected", (term) => void process.send?.({ type: "elected", term: term.term }));
election.on("ended", ({ term }) => void process.send?.({ type: "ended", term }));
process.once("SIGTERM", () => {
  void scheduler
    .stop()
    .then(() => election.stop())
    .then(() => redlock.close())
    .then(() => process.disconnect());
});
const report = (error: unknown): void => void process.stderr.write(`${String(error)}\n`);
election.on("error", report);
scheduler.on("error", report);
scheduler.start();
process.send?.({ type: "ready" });
