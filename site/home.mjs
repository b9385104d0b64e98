/** The first page, as VitePress' layout for it wants it. */
export const home = {
  layout: "home",
  hero: {
    name: "@x",
    text: "Locks, leaders and exclusive workers on Redis",
    tagline: "For Node.js teams that run several processes, and must not do a thing twice.",
    actions: [
      { theme: "brand", text: "Guides", link: "/README" },
      { theme: "alt", text: "How we know it works", link: "/how-we-know-it-works" },
    ],
  },
  features: [
    {
      title: "Two jobs charged one account",
      details: "BullMQ workers that process one job per key at a time, in order, on unchanged queues and producers.",
      link: "/workers/exclusive-jobs",
    },
    {
      title: "A cron task ran twice",
      details: "One replica runs each tick, or leads until it stops.",
      link: "/problems/cron-ran-twice",
    },
    {
      title: "A critical section must hold across processes",
      details: "Locks on one or several Redis nodes, with fencing tokens and fair waiting.",
      link: "/packages/redlock-core",
    },
    {
      title: "A lock was lost in the middle",
      details: "What your code then does, tested in milliseconds and without a Redis.",
      link: "/testing",
    },
  ],
};

/** The text below: what to install, the shortest program of each kind, and what a run looks like. */
export const homeText = `
## Install, and run

\`\`\`sh
npm install @x/workers @x/leader @x/redlock-core bullmq ioredis
\`\`\`

One job per account at a time, in order, over all processes:

\`\`\`ts
import { ExclusiveWorker } from "@x/workers";

const worker = new ExclusiveWorker("payments", async (job) => charge(job.data), {
  connection: { host: "localhost", port: 6379 },
  key: "accountId",
  resource: "account:",
});
\`\`\`

A critical section over all processes, and a schedule that runs on one replica:

\`\`\`ts
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";

const redlock = new Redlock("redis://localhost:6379");
await redlock.using("settings", async (lock) => save(lock.fencingToken));

const scheduler = new LeaderScheduler({ election: new LeaderElection(redlock, { name: "billing" }) });
scheduler.cron("nightly", "0 3 * * *", () => sendBills());
scheduler.start();
\`\`\`

This run put 20,000 flights on 59 departure boards, while a lock node, a leader and a worker were killed and a worker was
frozen. \`npm start\` in the [repository](REPOSITORY) repeats it, with a live page.

![Leaders, flights by worker, and faults of a run](pictures/departure-boards.svg)
`;
