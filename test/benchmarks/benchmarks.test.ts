/** The benchmarks run and report. No test asserts a measured value. */
import { describe, expect, it } from "vitest";
import { measureFairness } from "./fairness/fairness.ts";
import { measureKeys } from "./keys/keys.ts";
import { measureLeaders } from "./leaders/leaders.ts";
import { measureMany } from "./leaders/many.ts";
import { countTwoLeaders } from "./leaders/terms.ts";
import { measureHandOver } from "./locks/hand-over.ts";
import { measureMemory } from "./locks/memory.ts";
import { measureThroughput } from "./locks/throughput.ts";
import { measurePartitions } from "./partitions/partitions.ts";
import { barChart } from "./report/chart.ts";
import { compare, type Figure, figuresOf, updated } from "./report/figures.ts";
import { writeReport } from "./report/report.ts";
import { fairness, median, medianRatio, quantile, rotated } from "./support/statistics.ts";
import { historyOf, type Ran } from "./workers/history.ts";
import { loadNames, measureWorkers } from "./workers/workers.ts";

describe("the benchmarks", () => {
  it("measure pairs of the floor and of this project, and report them", async () => {
    const throughput = await measureThroughput({ rounds: 1, durationMs: 30, warmUpMs: 10, callers: [1, 100] }, [
      "ioredis",
      "our script, together",
      "ours",
    ]);
    expect(throughput.map(({ driver, nodes, callers }) => `${driver} ${nodes} ${callers}`)).toEqual([
      "ioredis 1 1",
      "our script, together 1 1",
      "ours 1 1",
      "ioredis 1 100",
      "our script, together 1 100",
      "ours 1 100",
      "ioredis 5 1",
      "our script, together 5 1",
      "ours 5 1",
      "ioredis 5 100",
      "our script, together 5 100",
      "ours 5 100",
    ]);
    for (const row of throughput) {
      expect(row.pairsPerSecond.median).toBeGreaterThan(0);
      expect(row.commands).toBeGreaterThan(0);
      expect(row.errors).toBe(0);
    }
    const { markdown, charts } = writeReport({ machine: "a machine", throughput });
    expect(markdown).toContain("Machine: a machine.");
    expect(markdown).toContain("## Acquire and release without contention, 5 nodes, 100 callers");
    expect([...charts.keys()]).toContain("pairs-1-nodes-1-callers.svg");
  });

  it("measure the memory that a lock leaves behind, and the memory of a held lock", async () => {
    const memory = await measureMemory({ rounds: 1, locks: 500 }, ["ours"]);
    expect(memory.map(({ driver, locks }) => ({ driver, locks }))).toEqual([{ driver: "ours", locks: 500 }]);
    expect(memory[0]?.pendingBytes.median).toBeGreaterThan(100);
    expect(memory[0]?.heldBytes.median).toBeGreaterThan(100);
    expect(memory[0]?.leftBytes.median).not.toBeNaN();
    expect(writeReport({ machine: "a machine", memory }).markdown).toContain("## Memory of a lock");
  });

  it("find no overlap among contending processes, of the floor or of this project", async () => {
    const rows = await measureHandOver({ rounds: 1, durationMs: 100 }, ["a line alone", "ours"]);
    expect(rows.map(({ label, nodes, overlaps, errors }) => ({ label, nodes, overlaps, errors }))).toEqual([
      { label: "a line alone (floor)", nodes: 1, overlaps: 0, errors: 0 },
      { label: "ours", nodes: 1, overlaps: 0, errors: 0 },
      { label: "ours", nodes: 5, overlaps: 0, errors: 0 },
    ]);
  });

  it("find no overlap and no job out of order among workers, of the floor or of this project", async () => {
    const systems = ["ExclusiveWorker", "BullMQ, ends together, the key alone"] as const;
    const rows = await measureWorkers({ rounds: 1, jobs: 200, limitMs: 20_000 }, systems);
    const seen = rows.map(({ doneShare, overlaps, orderViolations }) => ({ doneShare, overlaps, orderViolations }));
    expect(seen).toEqual(rows.map(() => ({ doneShare: 1, overlaps: 0, orderViolations: 0 })));
    expect(rows.map(({ load, system }) => `${load}: ${system}`).toSorted()).toEqual(
      loadNames.flatMap((load) => systems.map((system) => `${load}: ${system}`)).toSorted(),
    );
    expect(writeReport({ machine: "a machine", workers: rows }).markdown).toContain("100 keys, two processes");
  });

  it("detect overlaps, and jobs that started after a later job, even between processes", () => {
    const ran: readonly Ran[] = [
      ["a", 1, 10, 20],
      ["a", 0, 15, 25],
      ["hot", 0, 12, 40],
      ["a", 2, 25, 30],
    ];
    expect(historyOf(5, ran, "hot")).toEqual({
      done: 4,
      elapsedMs: 35,
      firstMs: 5,
      lastOtherMs: 25,
      overlaps: 1,
      orderViolations: 1,
    });
  });

  it("detect every failover, and never two leaders, of the floor and of this project", {
    timeout: 120_000,
  }, async () => {
    const leaders = await measureLeaders(
      {
        nodeCounts: [1],
        rounds: 1,
        candidates: 4,
        durations: { leaseMs: 2_000, retryPeriodMs: 280 },
        idleMs: 560,
        resignations: 2,
        crashes: 1,
      },
      ["SET NX PX", "the least", "ours"],
    );
    expect(
      leaders.map(({ way, resignedCold, resignedWarm, crashed, twoLeaders }) => [
        way,
        resignedCold.done + resignedWarm.done,
        crashed.done,
        twoLeaders,
      ]),
    ).toEqual([
      ["SET NX PX", 2, 1, 0],
      ["the least", 2, 1, 0],
      ["ours", 2, 1, 0],
    ]);
    for (const row of leaders) {
      expect(row.commandsPerSecond.median).toBeGreaterThan(0);
      expect(row.clientCpuPercent.median).toBeGreaterThan(0);
      expect(row.resignedCold.maxMs).toBeGreaterThan(0);
      expect(row.crashed.maxMs).toBeGreaterThan(0);
    }
    const { markdown, charts } = writeReport({ machine: "a machine", leaders });
    expect(markdown).toContain("4 candidates, each in a process of its own; lease 2000 ms, retry period 280 ms.");
    expect([...charts.keys()]).toEqual(["leaders-idle.svg", "leaders-resigned.svg", "leaders-crashed.svg"]);
  });

  it("measure a queue in partitions, busy and idle", async () => {
    const layouts = [{ servers: 2, partitions: 4 }];
    const partitions = await measurePartitions({ rounds: 1, jobs: 200, idleMs: 500, layouts });
    expect(partitions.map(({ servers, partitions: count }) => [servers, count])).toEqual([[2, 4]]);
    expect(partitions[0]?.jobsPerSecond.median).toBeGreaterThan(0);
    expect(partitions[0]?.connections).toBeGreaterThanOrEqual(6);
    expect(partitions[0]?.partitionBytes).toBeGreaterThan(0);
    expect(partitions[0]?.idleBytes).toBeGreaterThan(partitions[0]?.partitionBytes ?? 0);
    expect(writeReport({ machine: "a machine", partitions }).markdown).toContain("## A queue in partitions");
  });

  it("measure the memory of keys that have jobs in line, and start these jobs", async () => {
    const keys = await measureKeys({ rounds: 1, keyCounts: [20, 60], backlog: 2, starts: 100 });
    expect(keys.map(({ keys: count }) => count)).toEqual([20, 60]);
    for (const row of keys) {
      expect(row.startsPerSecond.median).toBeGreaterThan(0);
      expect(row.startCalls.median).toBeGreaterThan(0);
      expect(row.parkServerUs.median).not.toBeNaN();
      expect(row.lineBytes.median).not.toBeNaN();
    }
    expect(writeReport({ machine: "a machine", keys }).markdown).toContain("## Many keys with jobs in line");
  });

  it("serve the quiet tenants next to a hot one", async () => {
    const fairness = await measureFairness({ rounds: 1, loads: [{ slots: 1, hot: 100, quiet: 10 }] });
    expect(fairness.map(({ system }) => system)).toEqual([
      "BullMQ, no exclusion",
      "groupmq",
      "ExclusiveWorker",
      "ExclusiveWorker, in rotation",
    ]);
    for (const row of fairness) {
      expect(row.lastSeconds.median).toBeGreaterThanOrEqual(row.halfSeconds.median);
      expect(row.startCalls.median).toBeGreaterThan(0);
    }
    expect(writeReport({ machine: "a machine", fairness }).markdown).toContain("## A hot tenant and quiet tenants");
  });

  it("measure the cost of many elections in one process", async () => {
    const durations = { leaseMs: 2_000, retryPeriodMs: 280 };
    const settings = { nodeCounts: [1], rounds: 1, elections: 50, durations, idleMs: 1_000 };
    const elections = await measureMany(settings, ["ours"]);
    expect(elections.map(({ way, nodes }) => `${way} ${nodes}`)).toEqual(["ours 1"]);
    expect(elections[0]?.commandsPerSecond.median).toBeGreaterThan(0);
    expect(writeReport({ machine: "a machine", elections }).markdown).toContain("## 50 elections led by one process");
  });
});

describe("a figure", () => {
  const recorded = { name: "pairs/s", better: "higher", value: { median: 3, low: 2.9, high: 3.1 } } as const;
  const cost = { name: "CPU", better: "lower", value: { median: 10, low: 10, high: 10 } } as const;
  const now = (figure: Figure, median: number, width = 0): Figure => ({
    ...figure,
    value: { median, low: median - width / 2, high: median + width / 2 },
  });
  const worse = (before: Figure, after: Figure): readonly boolean[] =>
    compare([before], [after]).map(({ isWorse }) => isWorse);

  it("is worse if it fell by more than the spread of either run", () => {
    expect(worse(recorded, now(recorded, 2.7))).toEqual([true]);
    expect(worse(recorded, now(recorded, 2.85))).toEqual([false]);
    expect(worse(recorded, now(recorded, 2.7, 0.4))).toEqual([false]);
    expect(worse(recorded, now(recorded, 3.5))).toEqual([false]);
  });

  it("is worse if it rose although it should be small", () => {
    expect(worse(cost, now(cost, 10.4))).toEqual([false]);
    expect(worse(cost, now(cost, 10.6))).toEqual([true]);
    expect(worse(cost, now(cost, 5))).toEqual([false]);
  });

  it("is compared only with the record of the same name", () => {
    expect(compare([recorded], [cost])).toEqual([]);
  });

  it("replaces the recorded figure of the same name, and keeps the others", () => {
    const again = now(recorded, 5);
    expect(updated([recorded, cost], [again])).toEqual([again, cost]);
    expect(updated([cost], [again])).toEqual([cost, again]);
  });

  it("is taken from this project, not from its peers", () => {
    const row = {
      locks: 1,
      pendingBytes: { median: 2, low: 2, high: 2 },
      heldBytes: { median: Number.NaN, low: 0, high: 0 },
      leftBytes: { median: 1, low: 1, high: 1 },
    };
    const memory = [
      { ...row, driver: "ours" },
      { ...row, driver: "redlock 5" },
    ] as const;
    expect(figuresOf({ machine: "a machine", memory }).map(({ name }) => name)).toEqual([
      "bytes a pending acquire",
      "bytes left on the node a resource",
    ]);
  });
});

describe("the statistics", () => {
  it("interpolate quantiles and the median", () => {
    expect(quantile([4, 1, 3, 2], 0.5)).toBe(2.5);
    expect(quantile([1, 2, 3], 1)).toBe(3);
    expect(median([])).toBeNaN();
  });

  it("compare within rounds, so that a machine that slows down changes no ratio", () => {
    expect(medianRatio([20, 10, 2], [10, 5, 1])).toBe(2);
    expect(medianRatio([20, 10], [10, 0])).toBe(2);
  });

  it("rate equal shares as fair, and a single winner as unfair", () => {
    expect(fairness([5, 5, 5, 5])).toBe(1);
    expect(fairness([20, 0, 0, 0])).toBe(0.25);
  });

  it("count terms that began while another term lasted, in any order", () => {
    const terms = [
      { fromMs: 10, toMs: 20 },
      { fromMs: 0, toMs: 10 },
      { fromMs: 20, toMs: 60 },
      { fromMs: 30, toMs: 40 },
      { fromMs: 50, toMs: 70 },
    ];
    expect(countTwoLeaders(terms.slice(0, 3))).toBe(0);
    expect(countTwoLeaders(terms)).toBe(2);
  });

  it("begin each round with a different candidate", () => {
    expect(rotated(["a", "b", "c"], 4)).toEqual(["b", "c", "a"]);
    expect(rotated([], 1)).toEqual([]);
  });
});

it("a chart escapes its labels, and draws nothing for missing values", () => {
  const svg = barChart(
    "a < b",
    [
      { label: "x & y", value: 2, isOurs: true },
      { label: "missing", value: Number.NaN, isOurs: false },
    ],
    (value) => `${value} x`,
  );
  expect(svg).toContain("a &lt; b");
  expect(svg).toContain("x &amp; y");
  expect(svg).not.toContain("NaN");
});
