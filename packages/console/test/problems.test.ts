import { describe, expect, it } from "vitest";
import { differencesOf, processesOf } from "../src/page/rules/fleet.ts";
import { type Checked, problemsOf, titleWithTime, trackedProblems } from "../src/page/rules/problems.ts";
import { Series } from "../src/page/rules/series.ts";
import { countedText, countText, durationText, nameText, shellWord } from "../src/page/rules/words.ts";
import type {
  ElectionView,
  NodeView,
  Problem,
  ProblemView,
  QueueView,
  ScheduleView,
  WorkerView,
} from "../src/page/state.ts";

const NOW = 10_000_000;
const MINUTE = 60_000;

const queue = (facts: Partial<QueueView> = {}): QueueView => ({
  name: "payments",
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
  workers: 1,
  goneWorkers: 0,
  slots: 5,
  busySlots: 0,
  reportedAt: NOW - 1_000,
  watched: undefined,
  differences: [],
  series: undefined,
  error: undefined,
  at: NOW,
  ...facts,
});

const node = (name: string, facts: Partial<NodeView> = {}): NodeView => ({
  node: name,
  error: undefined,
  downSince: undefined,
  clockMs: 0,
  tookMs: 1,
  quarantineLeftMs: 0,
  ...facts,
});

const nodes = (...list: readonly NodeView[]): Checked["nodes"] => {
  const answering = list.filter(({ error }) => error === undefined).length;
  return { value: { nodes: list, isCluster: false, quorum: 2, answering }, error: undefined, at: NOW };
};

const election = (facts: Partial<ElectionView> = {}): ElectionView => ({
  name: "billing",
  state: "led",
  leader: { id: "vm/7", term: 5, value: undefined, since: NOW - MINUTE, expiresInMs: 14_000 },
  leaderlessSince: undefined,
  leaseMs: 15_000,
  error: undefined,
  terms: [],
  ...facts,
});

const schedule = (facts: Partial<ScheduleView> = {}): ScheduleView => ({
  scheduler: "0",
  election: "billing",
  name: "nightly",
  next: NOW + MINUTE,
  last: NOW - MINUTE,
  tickAt: NOW - MINUTE,
  outcome: "run",
  lateMs: 1,
  tookMs: 1,
  failure: undefined,
  missed: 0,
  paused: false,
  running: 0,
  owner: "vm/7",
  history: [],
  ...facts,
});

const worker = (facts: Partial<WorkerView> = {}): WorkerView => ({
  queue: "payments",
  version: "1.0.0",
  slots: 5,
  busy: 0,
  completed: 0,
  failed: 0,
  stalled: 0,
  locksLost: 0,
  lockLostAt: undefined,
  reportedAt: NOW,
  isGone: false,
  ...facts,
});

const state = (facts: Partial<Checked> = {}): Checked => ({
  now: NOW,
  nodes: nodes(node("a"), node("b"), node("c")),
  findings: [],
  processes: [],
  elections: [election()],
  schedules: [schedule()],
  queues: [queue()],
  outboxes: [],
  ...facts,
});

const found = (facts: Partial<Checked>): readonly unknown[] =>
  problemsOf(state(facts)).map(({ code, severity, title }) => [code, severity, title]);

const marks = (...outcomes: readonly ScheduleView["history"][number]["outcome"][]): ScheduleView["history"] =>
  outcomes.map((outcome, at) => ({ outcome, at: NOW - (at + 1) * MINUTE }));

describe("a state without a problem", () => {
  it("has none", () => {
    expect(problemsOf(state())).toEqual([]);
  });

  it.each<[string, Partial<Checked>]>([
    ["a queue without jobs and without workers", { queues: [queue({ workers: 0 })] }],
    [
      "a queue whose jobs run in workers that do not report",
      { queues: [queue({ workers: 0, running: 1, parked: 9 })] },
    ],
    ["a queue that was not read yet", { queues: [queue({ workers: undefined, runnable: 3 })] }],
    ["a paused queue without workers", { queues: [queue({ workers: 0, runnable: 0, parked: 2, isPaused: true })] }],
    [
      "a queue without workers whose jobs all wait for a paused key",
      { queues: [queue({ workers: 0, parked: 4, stopped: 4 })] },
    ],
    [
      "a gap shorter than a lease",
      { elections: [election({ state: "gap", leader: undefined, leaderlessSince: NOW - 15_000 })] },
    ],
    [
      "an election that has ended",
      { elections: [election({ state: "ended", leader: undefined, leaderlessSince: 0 })] },
    ],
    ["one failed tick", { schedules: [schedule({ outcome: "failed", history: marks("failed", "run", "failed") })] }],
    ["an old missed tick", { schedules: [schedule({ history: [{ outcome: "missed", at: NOW - 15 * MINUTE }] })] }],
    [
      "a job parked for five minutes",
      { queues: [queue({ parked: 1, oldest: { key: "a", since: NOW - 5 * MINUTE } })] },
    ],
    [
      "a lock that was lost long ago",
      {
        processes: [
          {
            at: "vm:7",
            workers: [worker({ locksLost: 1, lockLostAt: NOW - 15 * MINUTE })],
            leads: [],
            reportedAt: NOW,
            isGone: false,
          },
        ],
      },
    ],
    [
      "an outbox whose jobs leave in time",
      { outboxes: [{ name: "o", rows: 5, oldestMs: 60_000, growth: 1, error: undefined, at: NOW }] },
    ],
    [
      "a finding that only informs",
      { findings: [{ code: "EVEN_NODES", severity: "info", subjects: [], message: "four nodes" }] },
    ],
    [
      "a finding that the node's own row reports",
      { findings: [{ code: "UNREACHABLE", severity: "error", subjects: ["a"], message: "gone" }] },
    ],
  ])("is %s", (_, facts) => {
    expect(found(facts)).toEqual([]);
  });
});

describe("the checks", () => {
  it("find a queue with work and without a worker", () => {
    const queues = [queue({ workers: 0, runnable: 29_865, parked: 45, stalled: 15, reportedAt: NOW - MINUTE })];
    expect(found({ queues })).toEqual([
      [
        "NO_WORKER",
        "critical",
        "Queue payments has no worker, and of its jobs 29,865 can run, 45 wait for their key, 15 had started",
      ],
    ]);
    expect(problemsOf(state({ queues }))[0]).toMatchObject({
      since: NOW - MINUTE,
      command: "npx @x/console keys policy payments",
      place: { section: "workers", queue: "payments" },
    });
    // Three workers were killed: no job can run, and all jobs wait for a job that had started.
    expect(found({ queues: [queue({ workers: 0, stalled: 1 })] })).toEqual([
      ["NO_WORKER", "critical", "Queue payments has no worker, and of its jobs 1 had started"],
    ]);
  });

  it("find a halted key, and many halted keys as one problem", () => {
    const halted = (key: string): QueueView["halted"][number] => ({
      key,
      jobId: "88213",
      reason: "failed",
      since: NOW - MINUTE,
      until: undefined,
      parked: 14,
    });
    const [problem] = problemsOf(
      state({ queues: [queue({ pausedKeys: 1, haltedKeys: 1, halted: [halted("account:1001")] })] }),
    );
    expect(problem).toMatchObject({
      code: "KEY_HALTED",
      severity: "critical",
      title: "Key account:1001 of queue payments is halted after job 88213 failed, and 14 jobs wait",
      command: "npx @x/console keys retry payments 88213 && npx @x/console keys resume payments account:1001",
      action: {
        do: "retry-job",
        effect: "Job 88213 of key account:1001 runs again first. 14 jobs follow in order.",
        parameters: { queue: "payments", key: "account:1001", jobId: "88213" },
      },
      since: NOW - MINUTE,
    });
    const many = queue({
      pausedKeys: 20,
      haltedKeys: 20,
      halted: Array.from({ length: 10 }, (_, at) => halted(`k${at}`)),
    });
    expect(found({ queues: [many] })).toEqual([
      ["KEY_HALTED", "critical", "20 keys of queue payments are halted after a failed job"],
    ]);
  });

  it("find a quorum that is away, and each node that does not answer", () => {
    const down = { error: "connect ECONNREFUSED", downSince: NOW - 5_000 };
    expect(found({ nodes: nodes(node("a"), node("b", down), node("c", down)) })).toEqual([
      ["NO_QUORUM", "critical", "1 of 3 lock nodes answer, and 2 are needed"],
      ["NODE_DOWN", "warning", "Lock node b does not answer: connect ECONNREFUSED"],
      ["NODE_DOWN", "warning", "Lock node c does not answer: connect ECONNREFUSED"],
    ]);
    expect(found({ nodes: { value: undefined, error: "no answer from Redis", at: undefined } })).toEqual([
      ["NO_QUORUM", "critical", "The lock nodes cannot be read: no answer from Redis"],
    ]);
  });

  it("find an election without a leader for longer than a lease", () => {
    const since = NOW - 15_001;
    expect(
      problemsOf(state({ elections: [election({ state: "gap", leader: undefined, leaderlessSince: since })] })),
    ).toMatchObject([
      {
        code: "NO_LEADER",
        severity: "critical",
        title: "Election billing has no leader",
        since,
        place: { section: "time", name: "billing" },
      },
    ]);
  });

  it("find a lease that is renewed late", () => {
    const late = { id: "vm/7", term: 5, value: undefined, since: 0, expiresInMs: 4_999 };
    expect(found({ elections: [election({ leader: late })] })).toEqual([
      ["RENEWED_LATE", "warning", "vm/7, the leader of billing, renews its lease late"],
    ]);
  });

  it("find a lock that was lost", () => {
    const workers = [worker({ locksLost: 2, lockLostAt: NOW - MINUTE })];
    expect(found({ processes: [{ at: "vm:7", workers, leads: [], reportedAt: NOW, isGone: false }] })).toEqual([
      ["LOCK_LOST", "critical", "Worker vm:7 of queue payments has lost 2 locks while jobs ran"],
    ]);
  });

  it("find stalled jobs while a worker runs", () => {
    expect(found({ queues: [queue({ stalled: 1 })] })).toEqual([
      ["JOBS_STALLED", "warning", "1 job of queue payments had started, and its worker is gone"],
    ]);
  });

  it("find a job that is parked for more than five minutes", () => {
    const queues = [queue({ parked: 1, oldest: { key: "a b", since: NOW - 5 * MINUTE - 1 } })];
    expect(problemsOf(state({ queues }))).toMatchObject([
      {
        code: "PARKED_LONG",
        title: "A job of queue payments waits for key a b",
        command: "npx @x/console keys jobs payments 'a b'",
      },
    ]);
  });

  it("find a schedule that fails again and again, even while a tick runs", () => {
    const history = marks("running", "failed", "unfinished", "run");
    expect(
      problemsOf(state({ schedules: [schedule({ outcome: "failed", failure: "Error: no paper", history })] })),
    ).toMatchObject([
      {
        code: "SCHEDULE_FAILING",
        severity: "warning",
        title: "Schedule nightly has failed 2 ticks in a row: Error: no paper",
        since: NOW - 3 * MINUTE,
      },
    ]);
    expect(found({ schedules: [schedule({ history: marks("failed", "failed", "failed") })] })).toEqual([
      ["SCHEDULE_FAILING", "warning", "Schedule nightly has failed the last 3 ticks in a row"],
    ]);
  });

  it("find a missed tick", () => {
    expect(found({ schedules: [schedule({ history: marks("run", "missed") })] })).toEqual([
      ["TICK_MISSED", "warning", "Schedule nightly has missed a tick"],
    ]);
  });

  it("find a node in quarantine, and the findings of a check of the nodes", () => {
    expect(found({ nodes: nodes(node("a", { quarantineLeftMs: 5_000 }), node("b"), node("c")) })).toEqual([
      ["NODE_QUARANTINED", "warning", "Lock node a is in quarantine, because it has restarted"],
    ]);
    expect(
      found({
        findings: [{ code: "SAME_SERVER", severity: "error", subjects: ["a", "b"], message: "a and b are one server" }],
      }),
    ).toEqual([["NODE_FINDING", "critical", "SAME_SERVER: a and b are one server"]]);
  });

  it("find workers that differ", () => {
    expect(found({ queues: [queue({ differences: ["key is account in vm:1, and customer in vm:2"] })] })).toEqual([
      [
        "WORKERS_DIFFER",
        "warning",
        "The workers of queue payments differ: key is account in vm:1, and customer in vm:2",
      ],
    ]);
  });

  it("find a queue that is only watched, with what exclusion would prevent", () => {
    const watched = { ended: 4_310, overlaps: 312, outOfOrder: 5, watchedSinceMs: NOW - MINUTE };
    expect(found({ queues: [queue({ watched })] })).toEqual([
      [
        "QUEUE_WATCHED",
        "notice",
        "Queue payments is only watched: of 4,310 jobs that ended, 312 started while another job of the key was running, and 5 before an earlier job of the key",
      ],
    ]);
  });

  it("find a paused key, an outbox with a backlog, and parts that cannot be read", () => {
    const paused = [
      { key: "42", jobId: undefined, reason: "migration", since: NOW - MINUTE, until: undefined, parked: 2 },
    ];
    const outbox = { name: "mail", rows: 1_200, oldestMs: 61_000, growth: 3, error: undefined, at: NOW };
    expect(
      found({
        queues: [queue({ pausedKeys: 1, paused }), queue({ name: "mail", error: "no answer" })],
        outboxes: [outbox],
      }),
    ).toEqual([
      ["NOT_READ", "warning", "Queue mail cannot be read: no answer"],
      ["KEY_PAUSED", "notice", "Key 42 of queue payments is paused: migration"],
      ["OUTBOX_BACKLOG", "notice", "1,200 jobs of outbox mail wait for a relay, and their number grows"],
    ]);
  });

  it("find a hundred problems at most, the most severe ones", () => {
    const schedules = Array.from({ length: 300 }, (_, at) =>
      schedule({ name: `s${at}`, history: marks("failed", "failed") }),
    );
    const queues = [queue({ workers: 0, runnable: 1 })];
    const problems = problemsOf(state({ schedules, queues }));
    expect([problems.length, problems[0]?.code]).toEqual([100, "NO_WORKER"]);
  });

  it("name keys without control characters", () => {
    const halted = [{ key: "a\u0007\u001f1", jobId: "9", reason: "failed", since: 0, until: undefined, parked: 0 }];
    const [problem] = problemsOf(state({ queues: [queue({ pausedKeys: 1, haltedKeys: 1, halted })] }));
    expect(problem?.title).toBe("Key a·, slot 2 of queue payments is halted after job 9 failed, and no job waits");
  });
});

describe("the problems of a page", () => {
  const problem = (id: string, since?: number): Problem => ({
    id,
    code: "NODE_DOWN",
    severity: "warning",
    title: id,
    step: "",
    place: { section: "nodes" },
    since,
  });

  it("keep their beginning, stay for five minutes after they are solved, and begin again afterwards", () => {
    let shown: readonly ProblemView[] = [];
    const at = (now: number, ...ids: readonly string[]): unknown => {
      shown = trackedProblems(
        shown,
        ids.map((id) => problem(id)),
        now,
      );
      return shown.map(({ id, since, solvedAt }) => [id, since, solvedAt]);
    };
    expect(at(1_000, "a", "b")).toEqual([
      ["a", 1_000, undefined],
      ["b", 1_000, undefined],
    ]);
    expect(at(2_000, "b")).toEqual([
      ["b", 1_000, undefined],
      ["a", 1_000, 2_000],
    ]);
    expect(at(301_999, "b")).toEqual([
      ["b", 1_000, undefined],
      ["a", 1_000, 2_000],
    ]);
    expect(at(302_000, "b")).toEqual([["b", 1_000, undefined]]);
    at(303_000);
    expect(at(304_000, "b")).toEqual([["b", 304_000, undefined]]);
  });

  it("begin when the data say so", () => {
    expect(trackedProblems([], [problem("a", 7)], 1_000)).toMatchObject([{ since: 7 }]);
    expect(titleWithTime(problem("a", 1_000), 12_800)).toBe("a, for 11.8 s");
  });
});

describe("the processes", () => {
  const report = (
    at: string,
    isGone = false,
    key: string | null = "k",
  ): Parameters<typeof differencesOf>[0][number] => ({
    setup: { at, key, onFailure: "skip", locks: "", nodes: 1 },
    status: { slots: 5, busy: 1, completed: 9, failed: 0, stalled: 0, locksLost: 0 },
    reportedMs: NOW,
    isGone,
  });

  it("have their workers, their elections, and come last when they are gone", () => {
    const queues = [
      { queue: "b", reports: [report("vm:7"), report("vm:8", true)] },
      { queue: "a", reports: [report("vm:7")] },
    ];
    const shown = processesOf(
      queues,
      new Map([
        ["billing", "vm/7"],
        ["mail", "vm/77"],
      ]),
    );
    expect(
      shown.map(({ at, isGone, leads, workers }) => [at, isGone, leads, workers.map((each) => each.queue)]),
    ).toEqual([
      ["vm:7", false, ["billing"], ["a", "b"]],
      ["vm:8", true, [], ["b"]],
    ]);
  });

  it("differ in the options of the processes that report", () => {
    expect(differencesOf([report("vm:7"), report("vm:8", true, "other")])).toEqual([]);
    expect(differencesOf([report("vm:7"), report("vm:8"), report("vm:9", false, null)])).toEqual([
      "key is k in vm:7, vm:8, and a function in vm:9",
    ]);
  });
});

describe("the points of a chart", () => {
  const counts = (completed: number, process = "vm:7"): ReadonlyMap<string, { completed: number; failed: number }> =>
    new Map([[process, { completed, failed: 0 }]]);

  it("count the jobs that ended in each step, and leave out steps without a look", () => {
    const series = new Series();
    expect(series.view).toBeUndefined();
    series.add(0, { runnable: 5, parked: 1, counts: counts(100) });
    series.add(5_000, { runnable: 4, parked: 1, counts: counts(103) });
    series.add(16_000, { runnable: 3, parked: 1, counts: counts(104) });
    series.add(46_000, { runnable: 0, parked: 0, counts: counts(110) });
    expect(series.view).toMatchObject({ at: 45_000, completed: [6, null, 1, 3], runnable: [0, null, 3, 4] });
  });

  it("survive a process that restarts, and are 61 at most", () => {
    const series = new Series();
    series.add(0, { runnable: 0, parked: 0, counts: counts(100) });
    series.add(1, { runnable: 0, parked: 0, counts: counts(7, "vm:8") });
    expect(series.view?.completed).toEqual([7]);
    series.add(1e9, { runnable: 0, parked: 0, counts: counts(7, "vm:8") });
    expect(series.view?.completed).toHaveLength(61);
  });
});

describe("words", () => {
  it("are written as people read them", () => {
    expect([0, 999, 1_000, 29_865, 1_234_567].map(countText)).toEqual(["0", "999", "1,000", "29,865", "1,234,567"]);
    expect([countedText(1, "schedule"), countedText(2, "schedule"), countedText(0, "quorum", "quora")]).toEqual([
      "1 schedule",
      "2 schedules",
      "0 quora",
    ]);
    expect([240, 11_800, 242_000, 9_660_000, Number.POSITIVE_INFINITY].map(durationText)).toEqual([
      "240 ms",
      "11.8 s",
      "4 min 2 s",
      "2 h 41 min",
      "forever",
    ]);
    expect([nameText("account:42\u001f1"), nameText("a\u001bb\u202ec"), nameText("x".repeat(90))]).toEqual([
      "account:42, slot 2",
      "a·b·c",
      `${"x".repeat(80)}…`,
    ]);
    expect([shellWord("account:42"), shellWord("it's"), shellWord("$(rm)")]).toEqual([
      "account:42",
      String.raw`'it'\''s'`,
      "'$(rm)'",
    ]);
  });
});
