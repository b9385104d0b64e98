/** Pure: the measurements as one Markdown report with charts. */
import type { FairnessRow } from "../fairness/fairness.ts";
import type { KeysRow } from "../keys/keys.ts";
import type { Failovers, LeadersRow } from "../leaders/leaders.ts";
import type { ManyRow } from "../leaders/many.ts";
import type { HandOverRow } from "../locks/hand-over.ts";
import type { HeldRow } from "../locks/held.ts";
import type { HungNodeRow } from "../locks/hung-node.ts";
import type { MemoryRow } from "../locks/memory.ts";
import type { ThroughputRow } from "../locks/throughput.ts";
import type { PartitionsRow } from "../partitions/partitions.ts";
import type { WorkersRow } from "../workers/workers.ts";
import { barChart } from "./chart.ts";
import { type Cell, fixed, spreadCell, table } from "./table.ts";

export interface Measurements {
  readonly machine: string;
  readonly throughput?: readonly ThroughputRow[];
  readonly handOver?: readonly HandOverRow[];
  readonly hungNode?: readonly HungNodeRow[];
  readonly held?: readonly HeldRow[];
  readonly memory?: readonly MemoryRow[];
  readonly workers?: readonly WorkersRow[];
  readonly leaders?: readonly LeadersRow[];
  readonly elections?: readonly ManyRow[];
  readonly partitions?: readonly PartitionsRow[];
  readonly keys?: readonly KeysRow[];
  readonly fairness?: readonly FairnessRow[];
}

export interface Report {
  readonly markdown: string;
  /** Text of each chart by file name. The Markdown refers to these files. */
  readonly charts: ReadonlyMap<string, string>;
}

export function writeReport(measured: Measurements): Report {
  const charts = new Map<string, string>();
  const sections = [
    `# Benchmarks\n\nMachine: ${measured.machine}.\n\nDrivers run in processes of their own and take turns within each round. "x" is the ratio to the named base *in the same round*, as the median over the rounds: on a shared machine, absolute figures vary more than ratios and CPU time per operation. Commands are the commands that clients send on their connections. Server calls are \`total_commands_processed\`, which includes the calls inside scripts. The range in brackets contains half of the rounds, from the lower to the upper quartile.`,
    ...(measured.throughput === undefined ? [] : throughputSections(measured.throughput, measured.machine, charts)),
    ...(measured.handOver === undefined ? [] : [handOverSection(measured.handOver, charts)]),
    ...(measured.hungNode === undefined ? [] : [hungNodeSection(measured.hungNode)]),
    ...(measured.held === undefined ? [] : [heldSection(measured.held, charts)]),
    ...(measured.memory === undefined ? [] : [memorySection(measured.memory)]),
    ...(measured.workers === undefined ? [] : workersSections(measured.workers, charts)),
    ...(measured.leaders === undefined ? [] : [leadersSection(measured.leaders, charts)]),
    ...(measured.elections === undefined ? [] : [electionsSection(measured.elections)]),
    ...(measured.partitions === undefined ? [] : [partitionsSection(measured.partitions)]),
    ...(measured.keys === undefined ? [] : [keysSection(measured.keys)]),
    ...(measured.fairness === undefined ? [] : [fairnessSection(measured.fairness)]),
  ];
  return { markdown: `${sections.join("\n\n")}\n`, charts };
}

function throughputSections(
  rows: readonly ThroughputRow[],
  machine: string,
  charts: Map<string, string>,
): readonly string[] {
  return settingsOf(rows, ({ nodes, callers }) => `${nodes} ${callers}`).map((own) => {
    const { nodes = 0, callers = 0, rounds = 0 } = own[0] ?? {};
    const where = `${count(nodes, "node")}, ${count(callers, "caller")}`;
    const name = `pairs-${nodes}-nodes-${callers}-callers.svg`;
    charts.set(
      name,
      barChart(
        `Acquire and release, ${where}: times plain ioredis (${machine})`,
        own.map((row) => ({ label: row.driver, value: row.timesFloor.median, isOurs: isOurs(row.driver) })),
        (value) => `${value.toFixed(2)} x`,
      ),
    );
    return [
      `## Acquire and release without contention, ${where}`,
      `Pairs of acquire and release per second, each on a free resource; ${rounds} rounds. ioredis: SET NX PX and a compare-and-delete script, no quorum rules. Our script alone: one request of the library's own script per node, with everything that a lock needs, and without the library.`,
      `![](${name})`,
      table(
        [
          "driver",
          "pairs/s",
          "x ioredis",
          "x redlock 5",
          "client CPU µs/pair",
          "client CPU x ioredis",
          "server CPU µs/pair",
          "commands/pair",
          "server calls/pair",
          "errors",
        ],
        own.map((row) => [
          row.driver,
          spreadCell(row.pairsPerSecond, 0),
          spreadCell(row.timesFloor, 2),
          spreadCell(row.timesRedlock5, 2),
          spreadCell(row.clientCpuUs, 1),
          spreadCell(row.clientCpuTimesFloor, 2),
          spreadCell(row.serverCpuUs, 1),
          fixed(row.commands, 2),
          fixed(row.serverCalls, 1),
          row.errors,
        ]),
      ),
    ].join("\n\n");
  });
}

function handOverSection(rows: readonly HandOverRow[], charts: Map<string, string>): string {
  charts.set(
    "hand-over.svg",
    barChart(
      "Hand-over, 20 waiters in two processes: p50 in ms",
      rows.map((row) => ({
        label: `${row.label}, ${count(row.nodes, "node")}`,
        value: row.p50Ms.median,
        isOurs: isOurs(row.label),
      })),
      (value) => `${value.toFixed(2)} ms`,
    ),
  );
  return [
    "## Hand-over under contention",
    "20 waiters in two processes want one resource. Each holds the lock for 1 ms and asks again 10 ms after its release. Hand-over: from the call of the release to the next grant, if a waiter waited. Fairness: Jain's index over the grants of the waiters; 1 means equal shares.",
    "![](hand-over.svg)",
    table(
      [
        "driver",
        "nodes",
        "grants",
        "p50 ms",
        "p99 ms",
        "commands/grant",
        "fairness",
        "longest wait ms",
        "overlaps",
        "errors",
      ],
      rows.map((row) => [
        row.label,
        row.nodes,
        row.handOvers,
        spreadCell(row.p50Ms, 2),
        spreadCell(row.p99Ms, 1),
        fixed(row.commands, 1),
        fixed(row.fairness, 2),
        spreadCell(row.longestWaitMs, 0),
        row.overlaps,
        row.errors,
      ]),
    ),
  ].join("\n\n");
}

function hungNodeSection(rows: readonly HungNodeRow[]): string {
  return [
    "## Five nodes, one hung",
    "Pairs of acquire and release, one after the other, before and after one of five nodes is stopped with SIGSTOP. The clients have the defaults of ioredis. A pair is cut off after 2 s, and a driver after three such pairs.",
    table(
      ["driver", "healthy p50 ms", "hung p50 ms", "hung p99 ms", "cut off", "errors"],
      rows.map((row) => [
        row.driver,
        fixed(row.healthyP50Ms, 2),
        fixed(row.hungP50Ms, 2),
        fixed(row.hungP99Ms, 1),
        row.cutOff,
        row.errors,
      ]),
    ),
  ].join("\n\n");
}

function heldSection(rows: readonly HeldRow[], charts: Map<string, string>): string {
  charts.set(
    "held.svg",
    barChart(
      `${rows[0]?.locks ?? 0} locks kept alive by one process: commands per second`,
      rows.map((row) => ({ label: row.driver, value: row.commandsPerSecond, isOurs: isOurs(row.driver) })),
      (value) => value.toFixed(0),
    ),
  );
  return [
    `## ${rows[0]?.locks ?? 0} locks kept alive`,
    "One process holds the locks with automatic extension, with a TTL of 2 s, on one node. redlock 4 has no automatic extension.",
    "![](held.svg)",
    table(
      ["driver", "commands/s", "server calls/s", "client CPU %"],
      rows.map((row) => [
        row.driver,
        fixed(row.commandsPerSecond, 1),
        Math.round(row.serverCallsPerSecond),
        fixed(row.clientCpuPercent, 1),
      ]),
    ),
  ].join("\n\n");
}

function memorySection(rows: readonly MemoryRow[]): string {
  const locks = rows[0]?.locks ?? 0;
  return [
    "## Memory of a lock",
    `${locks} locks on one node, requested in one turn of the event loop and held together. Pending and held: heap and buffers of the client after a garbage collection. Left: the node's memory after the release. The second run of each process counts.`,
    table(
      ["driver", "pending, bytes", "held, bytes", "left on the node, bytes"],
      rows.map((row) => [
        row.driver,
        spreadCell(row.pendingBytes, 0),
        spreadCell(row.heldBytes, 0),
        spreadCell(row.leftBytes, 0),
      ]),
    ),
  ].join("\n\n");
}

function workersSections(rows: readonly WorkersRow[], charts: Map<string, string>): readonly string[] {
  return settingsOf(rows, ({ load }) => load).map((own) => {
    const { load = "", jobs = 0 } = own[0] ?? {};
    const name = `workers-${load.replaceAll(/\W+/g, "-")}.svg`;
    charts.set(
      name,
      barChart(
        `${jobs} jobs, ${load}: jobs per second`,
        own.map((row) => ({ label: row.system, value: row.jobsPerSecond.median, isOurs: isOurs(row.system) })),
        (value) => value.toFixed(0),
      ),
    );
    return [
      `## Workers: ${load}`,
      `${jobs} jobs of 1 ms, added before the start; one process unless the title says otherwise, with concurrency 50.${load.startsWith("100") ? " The key of each job is random." : ""}${load === "hot key" ? " Five of six jobs have the same key, and come before the other jobs. One at a time: a plain worker with concurrency 1, which shows the time that BullMQ itself needs for a sequence." : ""} Overlaps: jobs that began while another job of their key ran. Order violations: jobs that began after a later job of their key.`,
      `![](${name})`,
      table(
        [
          "system",
          "jobs/s",
          "x plain BullMQ",
          "done",
          "last other key s",
          "commands/job",
          "server calls/job",
          "client CPU µs/job",
          "server CPU µs/job",
          "overlaps",
          "order violations",
        ],
        own.map((row) => [
          row.system,
          spreadCell(row.jobsPerSecond, 0),
          spreadCell(row.timesPlain, 2),
          `${Math.round(row.doneShare * 100)} %`,
          spreadCell(row.lastOtherSeconds, 2),
          fixed(row.commands, 2),
          fixed(row.serverCalls, 1),
          spreadCell(row.clientCpuUs, 0),
          spreadCell(row.serverCpuUs, 0),
          row.overlaps,
          row.orderViolations,
        ]),
      ),
    ].join("\n\n");
  });
}

function leadersSection(rows: readonly LeadersRow[], charts: Map<string, string>): string {
  const { candidates = 0, rounds = 0, durations = { leaseMs: 0, retryPeriodMs: 0 } } = rows[0] ?? {};
  const { leaseMs, retryPeriodMs } = durations;
  const chart = (name: string, title: string, value: (row: LeadersRow) => number, unit: string): string => {
    const bars = rows.map((row) => ({
      label: `${row.way}, ${count(row.nodes, "node")}`,
      value: value(row),
      isOurs: isOurs(row.way),
    }));
    charts.set(
      name,
      barChart(`${candidates} candidates, lease ${leaseMs} ms: ${title}`, bars, (each) => `${each.toFixed(1)}${unit}`),
    );
    return `![](${name})`;
  };
  return [
    "## Leader election",
    `${candidates} candidates, each in a process of its own; lease ${leaseMs} ms, retry period ${retryPeriodMs} ms. ${count(rounds, "round")}, each with new processes and servers. Idle: all candidates together, to all nodes, while one candidate leads; CPU is the share of one core. Resigned: from the leader's call until the next candidate leads; meanwhile the old leader is no candidate. Cold: the next leader leads for the first time in its process, so most of its code is compiled at this moment; warm: it has led before. Crashed: from the SIGKILL of the leader's process, at any time between two renewals, until the next candidate leads: the lease has to expire, and each crash leaves one candidate less. Two leaders: terms that began while another program believed to lead. Lost: terms that ended without a request.`,
    [...new Set(rows.map(({ way, text }) => `- _${way}_: ${text}.`))].join("\n"),
    chart("leaders-idle.svg", "commands per second when idle", (row) => row.commandsPerSecond.median, ""),
    chart(
      "leaders-resigned.svg",
      "the next one leads after a resignation, for the first time, p50",
      (row) => row.resignedCold.tookMs.median,
      " ms",
    ),
    chart("leaders-crashed.svg", "the next one leads after a crash, p50", (row) => row.crashed.tookMs.median, " ms"),
    table(
      [
        "way",
        "nodes",
        "idle commands/s",
        "idle server calls/s",
        "idle client CPU %",
        "resigned, cold: done",
        "p50 ms",
        "max ms",
        "warm: done",
        "p50 ms",
        "max ms",
        "crashed: done",
        "p50 ms",
        "max ms",
        "two leaders",
        "lost",
      ],
      rows.map((row) => [
        row.way,
        row.nodes,
        ...loadCells(row),
        ...failoverCells(row.resignedCold, 1),
        ...failoverCells(row.resignedWarm, 1),
        ...failoverCells(row.crashed, 0),
        row.twoLeaders,
        row.lostTerms,
      ]),
    ),
  ].join("\n\n");
}

/** Returns the cost of elections while no leader changes. */
function loadCells(row: LeadersRow | ManyRow): readonly Cell[] {
  return [
    spreadCell(row.commandsPerSecond, 1),
    spreadCell(row.serverCallsPerSecond, 0),
    spreadCell(row.clientCpuPercent, 1),
  ];
}

function failoverCells({ tried, done, tookMs, maxMs }: Failovers, digits: number): readonly Cell[] {
  return [`${done} of ${tried}`, spreadCell(tookMs, digits), fixed(maxMs, digits)];
}

function electionsSection(rows: readonly ManyRow[]): string {
  const { elections = 0, durations = { leaseMs: 0, retryPeriodMs: 0 } } = rows[0] ?? {};
  return [
    `## ${elections} elections led by one process`,
    `Lease ${durations.leaseMs} ms, retry period ${durations.retryPeriodMs} ms; commands to all nodes, while no leader changes.`,
    table(
      ["way", "nodes", "commands/s", "server calls/s", "client CPU %"],
      rows.map((row) => [row.way, row.nodes, ...loadCells(row)]),
    ),
  ].join("\n\n");
}

function partitionsSection(rows: readonly PartitionsRow[]): string {
  return [
    "## A queue in partitions",
    "One process runs 50 empty jobs at a time, with 1,000 keys. All servers and the process share this machine's cores, so the rate does not grow with the number of servers. The table shows the CPU of a job, and that partitions share no work. Server CPU includes adding the jobs.",
    table(
      [
        "servers",
        "partitions",
        "jobs/s",
        "client µs a job",
        "server µs a job",
        "idle commands/s",
        "connections",
        "bytes of a partition's keys",
        "idle kB in all",
      ],
      rows.map((row) => [
        row.servers,
        row.partitions,
        spreadCell(row.jobsPerSecond, 0),
        spreadCell(row.clientCpuUs, 1),
        spreadCell(row.serverCpuUs, 1),
        spreadCell(row.idleCommandsPerSecond, 1),
        row.connections,
        fixed(row.partitionBytes, 0),
        fixed(row.idleBytes / 1_000, 0),
      ]),
    ),
  ].join("\n\n");
}

function keysSection(rows: readonly KeysRow[]): string {
  return [
    "## Many keys with jobs in line",
    `${rows[0]?.backlog ?? 0} jobs of each key were parked and wait in line. Then the keys become free, and one process with 50 slots starts empty jobs, while the other jobs continue to wait. At intervals a worker examines some keys with jobs in line, and their first jobs: the cost of a start includes this work.`,
    table(
      [
        "keys",
        "bytes a job, before",
        "bytes a key, in line",
        "server µs to put in line",
        "server µs to look at a key",
        "starts/s",
        "server µs a start",
        "client µs a start",
        "server calls a start",
      ],
      rows.map((row) => [
        row.keys,
        spreadCell(row.waitingBytes, 0),
        spreadCell(row.lineBytes, 0),
        spreadCell(row.parkServerUs, 1),
        spreadCell(row.lookServerUs, 1),
        spreadCell(row.startsPerSecond, 0),
        spreadCell(row.startServerUs, 1),
        spreadCell(row.startClientUs, 1),
        spreadCell(row.startCalls, 1),
      ]),
    ),
  ].join("\n\n");
}

function fairnessSection(rows: readonly FairnessRow[]): string {
  return [
    "## A hot tenant and quiet tenants",
    "The hot tenant's jobs are added first, then one job of each quiet tenant. One process runs the jobs, 1 ms each, until the last quiet tenant is served. The cost of a start is measured until then, and includes finding the jobs of the quiet tenants.",
    table(
      [
        "slots",
        "hot jobs",
        "quiet tenants",
        "system",
        "hot jobs before the last",
        "half served s",
        "last served s",
        "server calls a start",
        "server µs a start",
        "client µs a start",
      ],
      rows.map((row) => [
        row.slots,
        row.hot,
        row.quiet,
        row.system,
        spreadCell(row.hotStarts, 0),
        spreadCell(row.halfSeconds, 2),
        spreadCell(row.lastSeconds, 2),
        spreadCell(row.startCalls, 1),
        spreadCell(row.startServerUs, 1),
        spreadCell(row.startClientUs, 1),
      ]),
    ),
  ].join("\n\n");
}

function isOurs(label: string): boolean {
  return label.startsWith("ours") || label === "ExclusiveWorker";
}

function settingsOf<Row>(rows: readonly Row[], keyOf: (row: Row) => string): readonly (readonly Row[])[] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) groups.set(keyOf(row), [...(groups.get(keyOf(row)) ?? []), row]);
  return [...groups.values()];
}

function count(number: number, what: string): string {
  return number === 1 ? `1 ${what}` : `${number} ${what}s`;
}
