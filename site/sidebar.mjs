/** Pure: the guides by problem. A guide that is not named here goes to the section of its folder, under its own title. */
const named = [
  {
    text: "My problem",
    items: [
      { text: "A cron task ran twice", link: "/problems/cron-ran-twice" },
      { text: "Two jobs charged one account", link: "/workers/exclusive-jobs" },
      { text: "One turn per conversation", link: "/problems/one-turn-per-conversation" },
      { text: "One tenant starves the others", link: "/problems/one-tenant-starves-the-others" },
      { text: "Which Redis", link: "/locks/which-redis" },
      { text: "Which nodes to deploy", link: "/locks/choosing-nodes" },
      { text: "Losing a lock", link: "/locks/losing-a-lock" },
      { text: "Fencing", link: "/fencing" },
      { text: "Fencing: Postgres, MySQL, Mongo, S3", link: "/fencing-stores" },
      { text: "Zero-downtime deploys", link: "/problems/zero-downtime-deploys" },
      { text: "Rolling out to an existing queue", link: "/workers/rolling-out" },
      { text: "A job is stuck", link: "/workers/stuck-key" },
      { text: "Error messages", link: "/problems/error-messages" },
      { text: "Testing your own code", link: "/testing" },
    ],
  },
  {
    text: "Coming from",
    items: [
      { text: "node-redlock 4 and 5", link: "/locks/from-node-redlock" },
      { text: "redis-semaphore", link: "/problems/from-redis-semaphore" },
      { text: "Agenda", link: "/problems/from-agenda" },
      { text: "client-go leader election", link: "/problems/from-client-go" },
      { text: "BullMQ Pro's groups", link: "/problems/from-bullmq-pro" },
      { text: "groupmq", link: "/problems/from-groupmq" },
      { text: "A queue per customer", link: "/problems/from-a-queue-per-customer" },
      { text: "moveToDelayed tricks", link: "/problems/from-move-to-delayed" },
      { text: "A hand-made outbox", link: "/problems/from-a-hand-made-outbox" },
      { text: "node-cron", link: "/leader/node-cron" },
      { text: "BullMQ's own worker", link: "/workers/for-bullmq-users" },
      { text: "Beside the others", link: "/comparison" },
    ],
  },
  {
    text: "Locks",
    items: [
      { text: "@x/redlock-core", link: "/packages/redlock-core" },
      { text: "Granted, lost, handed over", link: "/locks/how-it-works" },
      { text: "Waiting and fairness", link: "/locks/waiting" },
      { text: "Quarantine", link: "/locks/quarantine" },
      { text: "Clients and connections", link: "/locks/clients" },
      { text: "Valkey GLIDE", link: "/locks/valkey-glide" },
      { text: "CommonJS, Jest, TypeScript", link: "/locks/commonjs-jest-typescript" },
      { text: "Rights of the Redis user", link: "/locks/rights" },
      { text: "Operating locks", link: "/locks/operating" },
      { text: "What a lock costs", link: "/locks/speed" },
      { text: "API", link: "/locks/api" },
      { text: "Options", link: "/locks/options" },
      { text: "Errors", link: "/locks/errors" },
      { text: "Events", link: "/locks/events" },
    ],
  },
  {
    text: "Elections and schedules",
    items: [
      { text: "@x/leader", link: "/packages/leader" },
      { text: "The scheduler", link: "/leader/scheduler" },
      { text: "Operating schedules", link: "/leader/scheduler-operating" },
      { text: "Missed and overlapping ticks", link: "/leader/missed-ticks" },
      { text: "Time zones", link: "/leader/time-zones" },
      { text: "Durations of an election", link: "/leader/durations" },
      { text: "Draining and stopping", link: "/leader/draining" },
      { text: "The term that a task gets", link: "/leader/term" },
      { text: "Renewal from a worker thread", link: "/leader/worker-thread" },
      { text: "Operating an election", link: "/leader/operating" },
      { text: "Options", link: "/leader/options" },
      { text: "Events and errors", link: "/leader/events-and-errors" },
    ],
  },
  {
    text: "Exclusive workers",
    items: [
      { text: "@x/workers", link: "/packages/workers" },
      { text: "The processor's lock", link: "/workers/processor" },
      { text: "When a key is busy", link: "/workers/busy-keys" },
      { text: "One call for all waiting jobs", link: "/workers/merge" },
      { text: "Limits of a key", link: "/workers/key-limits" },
      { text: "Whose turn it is", link: "/workers/fairness" },
      { text: "Leaving a key alone", link: "/workers/back-off" },
      { text: "Policies of single keys", link: "/workers/live-policies" },
      { text: "A queue in partitions", link: "/workers/partitions" },
      { text: "Operating partitions", link: "/workers/partitions-operating" },
      { text: "Order and recovery", link: "/workers/order" },
      { text: "Operating exclusive workers", link: "/workers/operating" },
      { text: "Dashboards and Prometheus", link: "/workers/dashboards" },
      { text: "Autoscaling", link: "/workers/autoscaling" },
      { text: "What exclusive jobs cost", link: "/workers/cost" },
      { text: "How exclusive workers work", link: "/workers/how-it-works" },
      { text: "Options", link: "/workers/options" },
      { text: "Errors", link: "/workers/errors" },
    ],
  },
  {
    text: "Effects in Postgres",
    items: [
      { text: "@x/effects", link: "/packages/effects" },
      { text: "Exactly once, and what that means", link: "/effects/exactly-once" },
      { text: "Any Postgres client", link: "/effects/clients" },
      { text: "Operating effects", link: "/effects/operating" },
    ],
  },
  {
    text: "Around them",
    items: [
      { text: "NestJS", link: "/nestjs" },
      { text: "@x/nestjs", link: "/packages/nestjs" },
      { text: "On Kubernetes", link: "/kubernetes" },
      { text: "The live page", link: "/console/page" },
      { text: "Spans and metrics", link: "/otel" },
      { text: "@x/otel", link: "/packages/otel" },
      { text: "Channels", link: "/channels" },
      { text: "The command line", link: "/packages/console" },
      { text: "Commands and options", link: "/console/commands" },
      { text: "@x/testing", link: "/packages/testing" },
      { text: "@x/node-redlock", link: "/packages/node-redlock" },
      { text: "For sibling packages", link: "/protocol" },
    ],
  },
  {
    text: "Can I trust it?",
    items: [
      { text: "Five pages for an audit", link: "/audit" },
      { text: "How we know it works", link: "/how-we-know-it-works" },
      { text: "The proof", link: "/proof" },
      { text: "What is supported", link: "/support" },
      { text: "Glossary", link: "/glossary" },
      { text: "All guides", link: "/README" },
    ],
  },
];

const sections = {
  locks: "Locks",
  leader: "Elections and schedules",
  workers: "Exclusive workers",
  effects: "Effects in Postgres",
};

function sectionOf(page) {
  if (/(^|\/)from-/.test(page)) return "Coming from";
  return sections[page.split("/")[0]] ?? "Around them";
}

/** Raw reports, and pages for contributors: other pages link to them. */
const UNLISTED = /^(?:benchmarks|contributing)\//;

/** The sidebar of these pages; `titleOf` returns what a page calls itself. */
export function sidebarOf(pages, titleOf) {
  const links = new Set(named.flatMap(({ items }) => items.map(({ link }) => link)));
  const others = pages.filter((page) => !links.has(`/${page}`) && !UNLISTED.test(page)).toSorted();
  return named.map(({ text, items }) => {
    const added = others.filter((page) => sectionOf(page) === text);
    return { text, items: [...items, ...added.map((page) => ({ text: titleOf(page), link: `/${page}` }))] };
  });
}
