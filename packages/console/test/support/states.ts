/**
 * States of the page with realistic figures, for tests of the page's look and for the pictures of the guide.
 * `test/page-browser.test.ts` compares the page with real servers.
 */
import type { KeyReading, KeyReadingJob } from "@x/workers";
import { groupsOf } from "../../src/page/rules/key-groups.ts";
import type {
  ElectionView,
  KeyRow,
  LockView,
  NodeView,
  PageState,
  ProblemView,
  ProcessView,
  QueueView,
  ScheduleView,
  SeriesView,
  TickMark,
  WorkerView,
} from "../../src/page/state.ts";

/** The time of the server in all states. Pictures and labels do not depend on when they are made. */
export const NOW = Date.UTC(2026, 10, 24, 14, 32, 7);

/** Parts that are absent in most states. */
const ABSENT = { error: undefined } as const;

/** A number from 0 to 1 that looks random, and is the same in each run. */
function noise(seed: number): number {
  const value = Math.sin(seed * 12.9898) * 43_758.5453;
  return value - Math.floor(value);
}

const wave = (seed: number, middle: number, spread: number): readonly number[] =>
  Array.from({ length: 61 }, (_, at) =>
    Math.max(0, Math.round(middle + spread * (noise(seed + at) - 0.5) + (spread / 3) * Math.sin((seed + at) / 6))),
  );

function seriesOf(seed: number, perMinute: number, runnable: number, parked: number, failed = 0): SeriesView {
  return {
    at: NOW - 3_000,
    completed: wave(seed, perMinute / 4, perMinute / 16),
    failed: Array.from({ length: 61 }, (_, at) => (at === 20 && failed > 0 ? failed : 0)),
    runnable: wave(seed + 70, runnable, runnable / 2 + 3),
    parked: wave(seed + 140, parked, parked / 2 + 3),
  };
}

function queueOf(name: string, more: Partial<QueueView> = {}): QueueView {
  return {
    name,
    isPaused: false,
    running: 0,
    stalled: 0,
    runnable: 0,
    parked: 0,
    limited: 0,
    stopped: 0,
    busyKeys: 0,
    pausedKeys: 0,
    haltedKeys: 0,
    halted: [],
    paused: [],
    oldest: undefined,
    longestLine: 0,
    workers: 3,
    goneWorkers: 0,
    slots: 30,
    busySlots: 0,
    reportedAt: NOW - 2_000,
    watched: undefined,
    differences: [],
    series: undefined,
    at: NOW - 400,
    ...ABSENT,
    ...more,
  };
}

function workerOf(queue: string, slots: number, busy: number, more: Partial<WorkerView> = {}): WorkerView {
  return {
    queue,
    version: "2.3.1",
    slots,
    busy,
    completed: 12_345,
    failed: 3,
    stalled: 0,
    locksLost: 0,
    lockLostAt: undefined,
    reportedAt: NOW - 3_000,
    isGone: false,
    ...more,
  };
}

function processOf(at: string, leads: readonly string[], workers: readonly WorkerView[], age = 3_000): ProcessView {
  return { at, leads, workers, reportedAt: NOW - age, isGone: workers.every(({ isGone }) => isGone) };
}

function nodeOf(node: string, more: Partial<NodeView> = {}): NodeView {
  return { node, clockMs: 1, tookMs: 0.8, downSince: undefined, quarantineLeftMs: 0, ...ABSENT, ...more };
}

function lockOf(
  resource: string,
  owner: string | undefined,
  seconds: number,
  left: number,
  waiters = 0,
  votes = 3,
): LockView {
  return {
    resource,
    state: "held",
    owner,
    holder: "0d1185c6",
    votes,
    remainingMs: left * 1_000,
    leaseMs: Math.ceil(left / 10) * 10_000,
    waiters,
    seenAt: NOW - seconds * 1_000,
  };
}

function ticksEvery(ms: number, ago: number, outcomes: readonly TickMark["outcome"][] = []): readonly TickMark[] {
  return Array.from({ length: 20 }, (_, at) => ({ outcome: outcomes[at] ?? "run", at: NOW - ago - at * ms }));
}

function scheduleOf(name: string, election: string, owner: string, more: Partial<ScheduleView> = {}): ScheduleView {
  const [newest] = more.history ?? [];
  return {
    scheduler: JSON.stringify([election, ""]),
    election,
    name,
    next: NOW + 8_000,
    last: newest?.at,
    tickAt: newest?.at,
    outcome: newest?.outcome,
    lateMs: 4,
    tookMs: 212,
    failure: undefined,
    missed: 0,
    paused: false,
    running: 0,
    owner,
    history: [],
    ...more,
  };
}

const [ONE, TWO, THREE] = ["billing-1:4312", "billing-2:4187", "billing-3:5020"] as const;

function electionOf(name: string, id: string, sinceMs: number, before: ElectionView["terms"] = []): ElectionView {
  const since = NOW - sinceMs;
  const term = (before.at(-1)?.term ?? 40) + 1;
  return {
    name,
    state: "led",
    leader: { id, term, since, expiresInMs: 12_900, value: undefined },
    leaderlessSince: undefined,
    leaseMs: 15_000,
    terms: [...before, { term, id, since, until: undefined, end: undefined }],
    ...ABSENT,
  };
}

const LOCKS: readonly LockView[] = [
  lockOf("stock:sku-20981", "checkout-4", 1.2, 8.9, 14),
  lockOf("cache:rates", undefined, 0.1, 4.9, 3),
  lockOf("leader:reports", ONE, 9_660, 11.3, 2),
  lockOf("leader:billing", THREE, 687, 12.9, 2),
  lockOf("account:4711", TWO, 12.4, 24, 2),
  lockOf("account:1001", ONE, 3.1, 27.2, 1),
  lockOf("migration:ledger", "ops-laptop", 363, 52),
  lockOf("export:tenant-77", THREE, 38.2, 21.8),
  lockOf("report:daily", ONE, 17, 13.2),
  lockOf("invoice:2026-11:eu", ONE, 4.8, 25.3),
  lockOf("invoice:2026-11:us", TWO, 2.9, 27.1),
  lockOf("account:8350\u001f1", THREE, 0.4, 29.7),
];

const QUEUES: readonly QueueView[] = [
  queueOf("emails", {
    running: 22,
    busySlots: 22,
    runnable: 118,
    parked: 24,
    limited: 7,
    oldest: { key: "tenant-9", since: NOW - 900 },
    series: seriesOf(1, 1_906, 118, 24),
  }),
  queueOf("payments", {
    running: 9,
    slots: 15,
    busySlots: 9,
    runnable: 4,
    parked: 31,
    limited: 3,
    stopped: 6,
    pausedKeys: 1,
    paused: [
      { key: "account:2093", jobId: undefined, reason: "dispute", since: NOW - 242_000, until: undefined, parked: 6 },
    ],
    oldest: { key: "account:4711", since: NOW - 11_800 },
    series: seriesOf(2, 842, 4, 31),
  }),
  queueOf("invoices", {
    running: 6,
    slots: 15,
    busySlots: 6,
    parked: 12,
    oldest: { key: "account:1001", since: NOW - 900 },
    series: seriesOf(3, 214, 1, 12, 1),
  }),
  queueOf("exports", {
    running: 1,
    slots: 6,
    busySlots: 1,
    parked: 3,
    oldest: { key: "tenant-77", since: NOW - 4_200 },
    series: seriesOf(4, 12, 0, 3),
  }),
];

const PROCESSES: readonly ProcessView[] = [
  processOf(
    ONE,
    ["reports"],
    [workerOf("emails", 10, 8), workerOf("exports", 2, 0), workerOf("invoices", 5, 2), workerOf("payments", 5, 3)],
  ),
  processOf(
    TWO,
    [],
    [workerOf("emails", 10, 7), workerOf("exports", 2, 1), workerOf("invoices", 5, 2), workerOf("payments", 5, 4)],
    6_000,
  ),
  processOf(
    THREE,
    ["billing"],
    [workerOf("emails", 10, 7), workerOf("exports", 2, 0), workerOf("invoices", 5, 2), workerOf("payments", 5, 2)],
    1_000,
  ),
];

const SCHEDULES: readonly ScheduleView[] = [
  scheduleOf("charge-subscriptions", "billing", THREE, { history: ticksEvery(10_000, 2_000) }),
  scheduleOf("sync-exchange-rates", "billing", THREE, {
    history: ticksEvery(60_000, 7_000),
    next: NOW + 53_000,
    tookMs: 1_100,
  }),
  scheduleOf("nightly-invoices", "billing", THREE, {
    next: NOW + 44_820_000,
    history: [{ outcome: "run", at: NOW - 41_527_000 }],
  }),
  scheduleOf("usage-report", "reports", ONE, {
    history: ticksEvery(300_000, 127_000),
    next: NOW + 173_000,
    tookMs: 3_400,
  }),
  scheduleOf("delete-old-exports", "reports", ONE, {
    history: ticksEvery(120_000, 7_000),
    next: NOW + 113_000,
    tookMs: 640,
  }),
];

const NODES: readonly NodeView[] = [
  nodeOf("redis-1:6379"),
  nodeOf("redis-2:6379", { tookMs: 0.9, clockMs: -2 }),
  nodeOf("redis-3:6379", { tookMs: 1.2, clockMs: 0 }),
];

/** Nothing needs attention. */
export function allWell(): PageState {
  return {
    now: NOW,
    actions: true,
    live: { isLive: true, at: NOW, ...ABSENT },
    problems: [],
    nodes: { value: { nodes: NODES, isCluster: false, quorum: 2, answering: 3 }, at: NOW, ...ABSENT },
    semaphores: {
      total: 2,
      semaphores: [
        {
          name: "bank-api",
          kind: "semaphore",
          used: 5,
          permits: 5,
          leases: 4,
          endsInMs: 6_200,
          waiters: 3,
        },
        {
          name: "price-list",
          kind: "read-write lock",
          used: 4,
          permits: 1_000_000,
          leases: 4,
          endsInMs: 8_900,
          waiters: 0,
        },
      ],
    },
    findings: { value: [], at: NOW - 12_000, ...ABSENT },
    processes: PROCESSES,
    elections: [
      electionOf("billing", THREE, 687_000, [
        { term: 41, id: ONE, since: NOW - 3_600_000, until: NOW - 689_100, end: "resigned" },
      ]),
      electionOf("reports", ONE, 9_660_000),
      {
        ...electionOf("migration-2025", "ops-laptop", 90_000_000),
        state: "ended",
        leader: undefined,
        terms: [{ term: 3, id: "ops-laptop", since: NOW - 90_000_000, until: NOW - 86_500_000, end: "resigned" }],
      },
    ],
    queues: QUEUES,
    outboxes: [{ name: "payments", rows: 12, oldestMs: 400, growth: -0.2, at: NOW - 3_000, ...ABSENT }],
    events: [{ at: NOW - 689_100, kind: "note", text: "version 7 was deployed" }],
    schedules: { value: { schedules: SCHEDULES, total: SCHEDULES.length }, at: NOW, ...ABSENT },
    locks: { value: { locks: LOCKS, total: LOCKS.length, found: LOCKS.length, isComplete: true }, at: NOW, ...ABSENT },
    keys: undefined,
    key: undefined,
  };
}

const PROBLEMS: readonly ProblemView[] = [
  {
    id: "NO_WORKER payments",
    code: "NO_WORKER",
    severity: "critical",
    title: "Queue payments has no worker, and of its jobs 29,865 can run, 31 wait for their key, 9 had started",
    step: "Start a worker of this queue.",
    command: "npx @x/console keys policy payments",
    place: { section: "queues", queue: "payments" },
    since: NOW - 134_000,
    solvedAt: undefined,
  },
  {
    id: "KEY_HALTED invoices account:1001",
    code: "KEY_HALTED",
    severity: "critical",
    title: "Key account:1001 of queue invoices is halted after job 88213 failed, and 14 jobs wait",
    step: "Correct the cause, retry the failed job, then resume the key. Resuming alone skips the job.",
    command: "npx @x/console keys explain invoices 88213",
    action: {
      do: "retry-job",
      label: "Retry, then resume",
      effect: "Job 88213 of key account:1001 runs again first. 14 jobs follow in order.",
      parameters: { queue: "invoices", key: "account:1001", jobId: "88213" },
    },
    place: { section: "queues", queue: "invoices", key: "account:1001" },
    since: NOW - 1_265_000,
    solvedAt: undefined,
  },
  {
    id: "SCHEDULE_FAILING billing sync-exchange-rates",
    code: "SCHEDULE_FAILING",
    severity: "warning",
    title: "Schedule sync-exchange-rates has failed 3 ticks in a row: HTTP 503 from rates.example.com",
    step: "Correct the handler. The next tick runs as planned.",
    action: {
      do: "trigger-schedule",
      label: "Run now",
      effect: "The leader runs sync-exchange-rates once, now.",
      parameters: { scheduler: '["billing",""]', name: "sync-exchange-rates" },
    },
    place: { section: "time", name: "sync-exchange-rates" },
    since: NOW - 127_000,
    solvedAt: undefined,
  },
  {
    id: "NODE_QUARANTINED redis-3:6379",
    code: "NODE_QUARANTINED",
    severity: "warning",
    title: "Lock node redis-3:6379 is in quarantine, because it has restarted",
    step: "Wait until the quarantine ends. A node that keeps its data across restarts needs none.",
    command: "npx @x/console check",
    place: { section: "nodes", name: "redis-3:6379" },
    since: NOW - 48_000,
    solvedAt: undefined,
  },
  {
    id: "NO_LEADER billing",
    code: "NO_LEADER",
    severity: "critical",
    title: "Election billing has no leader",
    step: "Start a candidate.",
    place: { section: "time", name: "billing" },
    since: NOW - 134_000,
    solvedAt: NOW - 130_000,
  },
];

/** A queue has no worker, a key is halted, a schedule fails, a node is in quarantine, and an election had no leader. */
export function trouble(): PageState {
  const state = allWell();
  const gone = ["billing-1:4299", "billing-2:4170", "billing-3:5001"];
  const falling = seriesOf(2, 842, 4, 31);
  return {
    ...state,
    problems: PROBLEMS,
    nodes: {
      value: {
        nodes: [...NODES.slice(0, 2), nodeOf("redis-3:6379", { tookMs: 1.4, quarantineLeftMs: 12_000 })],
        isCluster: false,
        quorum: 2,
        answering: 3,
      },
      at: NOW,
      ...ABSENT,
    },
    processes: [
      ...PROCESSES.map((process) => ({
        ...process,
        workers: process.workers.filter(({ queue }) => queue !== "payments"),
      })),
      ...gone.map((at) =>
        processOf(
          at,
          [],
          [workerOf("payments", 5, 3, { isGone: true, version: "2.3.0", reportedAt: NOW - 134_000 })],
          134_000,
        ),
      ),
    ],
    queues: state.queues.map((queue) =>
      queue.name === "payments"
        ? {
            ...queue,
            running: 0,
            stalled: 9,
            runnable: 29_865,
            workers: 0,
            goneWorkers: 3,
            slots: undefined,
            busySlots: undefined,
            reportedAt: NOW - 134_000,
            oldest: { key: "account:4711", since: NOW - 145_000 },
            series: {
              ...falling,
              completed: falling.completed.map((value, at) => (at < 9 ? 0 : value)),
              runnable: falling.runnable.map((value, at) => (at < 9 ? 29_865 - at * 3_300 : value)),
            },
          }
        : queue.name === "invoices"
          ? {
              ...queue,
              stopped: 14,
              parked: 26,
              halted: [
                {
                  key: "account:1001",
                  jobId: "88213",
                  reason: "failed",
                  since: NOW - 1_265_000,
                  until: undefined,
                  parked: 14,
                },
              ],
            }
          : queue,
    ),
    elections: [
      electionOf("billing", TWO, 130_000, [
        { term: 41, id: ONE, since: NOW - 3_600_000, until: NOW - 134_000, end: "lease-ended" },
      ]),
      ...state.elections.slice(1),
    ],
    schedules: {
      value: {
        schedules: SCHEDULES.map((schedule) =>
          schedule.name === "sync-exchange-rates"
            ? {
                ...schedule,
                outcome: "failed",
                failure: "HTTP 503 from rates.example.com",
                history: ticksEvery(60_000, 7_000, ["failed", "failed", "failed"]),
              }
            : schedule.name === "charge-subscriptions"
              ? {
                  ...schedule,
                  missed: 1,
                  history: ticksEvery(10_000, 2_000, [...Array.from({ length: 13 }, () => "run" as const), "missed"]),
                }
              : schedule,
        ),
        total: SCHEDULES.length,
      },
      at: NOW,
      ...ABSENT,
    },
    events: [
      { at: NOW - 48_000, kind: "page", text: "redis-3:6379 restarted" },
      { at: NOW - 134_000, kind: "page", text: "the last worker of payments went" },
      { at: NOW - 139_000, kind: "note", text: "version 8 was deployed" },
    ],
  };
}

/** Redis has not answered for 48 s: everything is as of then. */
export function away(): PageState {
  const state = allWell();
  const since = NOW - 48_000;
  const error = "0 of 3 nodes answer, 2 make a quorum";
  const down = (host: string, ip: string): NodeView =>
    nodeOf(host, { error: `connect ECONNREFUSED ${ip}:6379`, downSince: since, clockMs: undefined });
  return {
    ...state,
    live: { isLive: false, at: since, error },
    problems: [
      {
        id: "NO_QUORUM",
        code: "NO_QUORUM",
        severity: "critical",
        title: "0 of 3 lock nodes answer, and 2 are needed",
        step: "Start the lock nodes. The page continues by itself.",
        command: "npx @x/console check",
        place: { section: "nodes" },
        since,
        solvedAt: undefined,
      },
    ],
    nodes: {
      value: {
        nodes: [
          down("redis-1:6379", "10.0.4.11"),
          down("redis-2:6379", "10.0.4.12"),
          down("redis-3:6379", "10.0.4.13"),
        ],
        isCluster: false,
        quorum: 2,
        answering: 0,
      },
      error,
      at: since,
    },
    elections: state.elections.map((election) =>
      election.state === "ended" ? election : { ...election, state: "unknown" },
    ),
    queues: state.queues.map((queue) => ({ ...queue, at: since, error: "no answer from Redis" })),
    locks: { ...state.locks, error, at: since },
    schedules: { ...state.schedules, error, at: since },
    outboxes: [],
    events: [{ at: since, kind: "page", text: "Redis stopped answering" }, ...state.events],
  };
}

function rowOf(
  key: string,
  state: KeyRow["state"],
  holder: string | undefined,
  parked: number,
  more: Partial<KeyRow> = {},
): KeyRow {
  return {
    key,
    state,
    why: holder === undefined ? state : `job ${holder} ${state}`,
    holder,
    holders: holder === undefined ? [] : [holder],
    sinceMs: state === "running" ? NOW - 900 - parked * 100 : undefined,
    parked,
    paused: undefined,
    isStalled: state === "stalled",
    limitedUntilMs: undefined,
    slots: 1,
    rate: undefined,
    policy: undefined,
    waitingSinceMs: parked === 0 ? undefined : NOW - 400 - parked * 700,
    ...more,
  } as KeyRow;
}

function jobOf(id: string, verdict: KeyReadingJob["verdict"], more: Partial<KeyReadingJob> = {}): KeyReadingJob {
  return {
    id,
    name: "charge",
    verdict,
    message: verdict === "runs" ? "runs" : "waits for its key",
    startedMs: undefined,
    parkedSinceMs: undefined,
    worker: undefined,
    lockMs: undefined,
    workerReportedMs: undefined,
    ...more,
  };
}

const IN_LINE: readonly KeyReadingJob[] = ["90418", "90431", "90440", "90447", "90452", "90460"].map((id, at) =>
  jobOf(id, "parked", { parkedSinceMs: NOW - 11_800 + at * 2_200, name: at === 2 ? "refund" : "charge" }),
);

/** A queue with one opened key, whose job runs. */
export function openedKey(): PageState {
  const state = allWell();
  const reading: KeyReading = {
    ...rowOf("account:4711", "running", "90412", 14, { sinceMs: NOW - 12_400 }),
    atMs: NOW,
    message:
      "14 jobs wait because job 90412 has the key. It has run on billing-2:4187 for 12.4 s, and the key allows 1 job at a time.",
    jobs: [
      jobOf("90412", "runs", { startedMs: NOW - 12_400, lockMs: 24_100, worker: TWO, workerReportedMs: NOW - 6_000 }),
      ...IN_LINE,
    ],
  };
  const keys: readonly KeyRow[] = [
    rowOf("account:4711", "running", "90412", 14, { sinceMs: NOW - 12_400 }),
    rowOf("account:2093", "paused", undefined, 6, { paused: { reason: "dispute", sinceMs: NOW - 242_000 } }),
    rowOf("account:1001", "running", "90455", 5),
    rowOf("account:7780", "limited", undefined, 3, {
      limitedUntilMs: NOW + 12_000,
      policy: { rate: { max: 100, duration: 60_000 } },
    }),
    rowOf("account:8350", "running", "90461", 1),
    rowOf("account:3141", "running", "90458", 1, {
      holders: ["90458", "90460"],
      slots: 2,
      policy: { concurrency: 2 },
    }),
    rowOf("account:5512", "waits", "90464", 0),
    rowOf("account:1877", "running", "90465", 0),
  ];
  return {
    ...state,
    keys: { queue: "payments", total: 8, found: 8, keys, groups: groupsOf(keys, NOW) },
    key: { value: reading, at: NOW, ...ABSENT },
  };
}

/** A queue with an opened key that a failed job has halted. */
export function haltedKey(): PageState {
  const state = trouble();
  const paused = { reason: "failed", sinceMs: NOW - 1_265_000, jobId: "88213" };
  const row = rowOf("account:1001", "halted", undefined, 14, { paused, waitingSinceMs: NOW - 1_260_000 });
  const reading: KeyReading = {
    ...row,
    atMs: NOW,
    message:
      "14 jobs wait because job 88213 failed and keeps the order. Nothing of this key runs until somebody retries the job or resumes the key.",
    jobs: ["88219", "88240", "88251", "88266", "88302"].map((id, at) =>
      jobOf(id, "parked", {
        name: at === 2 ? "send-reminder" : "send-invoice",
        parkedSinceMs: NOW - 1_260_000 + at * 91_000,
      }),
    ),
  };
  return {
    ...state,
    keys: { queue: "invoices", keys: [row], total: 1, found: 1, groups: groupsOf([row], NOW) },
    key: { value: reading, at: NOW, ...ABSENT },
  };
}

/** A queue with 10,000 keys, of which the page shows 25. */
export function tenThousandKeys(): PageState {
  const state = allWell();
  const keys = Array.from({ length: 25 }, (_, at) => {
    const parked = at === 0 ? 1_204 : Math.round(402 / (at * 0.5 + 0.5));
    const name = `cust-${(at * 7_919 + 1_185) % 10_000}`;
    if (at === 0)
      return rowOf(name, "halted", undefined, parked, {
        paused: { reason: "failed", sinceMs: NOW - 2_280_000, jobId: "400118" },
      });
    if (at === 4)
      return rowOf(name, "paused", undefined, parked, {
        paused: { reason: "asked by support", sinceMs: NOW - 720_000 },
      });
    if (at === 2)
      return rowOf(name, "limited", undefined, parked, { policy: { rate: { max: 100, duration: 60_000 } } });
    return rowOf(name, at % 5 === 3 ? "waits" : "running", String(411_820 + at * 3), parked);
  });
  const halted = {
    key: keys[0]?.key ?? "",
    jobId: "400118",
    reason: "failed",
    since: NOW - 2_280_000,
    until: undefined,
    parked: 1_204,
  };
  const queue = queueOf("tenant-sync", {
    running: 80,
    slots: 80,
    busySlots: 80,
    workers: 8,
    runnable: 742,
    parked: 18_344,
    limited: 341,
    stopped: 1_322,
    pausedKeys: 2,
    haltedKeys: 1,
    halted: [halted],
    oldest: { key: "cust-77", since: NOW - 371_000 },
    series: seriesOf(9, 5_240, 742, 18_344, 17),
  });
  const lines: readonly (readonly [least: number, keys: number, jobs: number])[] = [
    [1, 3_163, 3_163],
    [2, 1_290, 3_096],
    [4, 741, 3_780],
    [8, 262, 2_830],
    [16, 84, 1_848],
    [32, 9, 407],
    [64, 13, 1_185],
    [128, 3, 831],
    [512, 1, 1_204],
  ];
  const waits = [3_910, 1_204, 431, 17, 3, 1];
  const groups = {
    counts: { waiting: 5_566, limited: 4, paused: 2, halted: 1, stalled: 0 },
    lines: lines.map(([least, keys, jobs]) => ({ least, keys, jobs })),
    ages: [0, 1_000, 10_000, 60_000, 300_000, 1_800_000].map((leastMs, at) => ({ leastMs, keys: waits[at] ?? 0 })),
    fifth: 26,
  };
  return {
    ...state,
    queues: [queue, ...QUEUES],
    keys: { queue: "tenant-sync", keys, total: 10_000, found: 10_000, groups },
  };
}
