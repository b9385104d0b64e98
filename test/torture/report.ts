/** Pure: the tables of a report. */
import type { Figures, Standstill } from "./checker.ts";
import { FAULT_KINDS, type FaultKind } from "./events.ts";
import type { LockSystem, QueueSystem } from "./systems/system.ts";
import type { Run } from "./torture.ts";

/** All runs of one system. */
export interface Tortured {
  readonly system: LockSystem | QueueSystem;
  readonly version: string;
  readonly runs: readonly Run[];
}

type Column = readonly [title: string, value: (tortured: Tortured) => string];

const sum = ({ runs }: Tortured, count: (figures: Figures) => number): number =>
  runs.reduce((total, { figures }) => total + count(figures), 0);
const summed =
  (count: (figures: Figures) => number) =>
  (tortured: Tortured): string =>
    `${sum(tortured, count)}`;
const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

const totalOf = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

const NAME: Column = ["system", ({ system, version, runs }) => `${system.title} ${version}${withoutText(runs)}`];
const COMMON: readonly Column[] = [
  ["faults", summed(({ faults }) => totalOf(faults))],
  ["turns", summed(({ turns }) => turns)],
  ["overlaps, longest", overlapsCell],
  ["lost updates", summed(({ lostUpdates }) => lostUpdates)],
  ["late writes refused", summed(({ refusedWrites }) => refusedWrites)],
];
const JOBS: readonly Column[] = [
  ["jobs", summed(({ jobs }) => jobs?.added ?? 0)],
  ["without effect at the end", summed(({ jobs }) => jobs?.lost ?? 0)],
  ["effects repeated", summed(({ jobs }) => jobs?.repeatedEffects ?? 0)],
  ["out of order", summed(({ jobs }) => jobs?.outOfOrder ?? 0)],
];
const TIMES: readonly Column[] = [
  ["standstills, longest", ({ runs }) => standstillsCell(runs.flatMap(({ figures }) => figures.standstills))],
  ["keys that stood at the end", summed(({ standstills }) => standstills.filter(({ isOpen }) => isOpen).length)],
  ["back after a kill: median, longest (turns)", recoveryCell],
  ["uncaught errors", summed(({ uncaught }) => totalOf(uncaught))],
];

/** The whole report. */
export function reportText(all: readonly Tortured[], command: string): string {
  const locks = all.filter(({ system }) => system.kind === "locks");
  const queues = all.filter(({ system }) => system.kind === "queue");
  return [
    `Command: \`${command}\``,
    ...(locks.length > 0 ? ["## Locks", tableOf(locks, [NAME, ...COMMON, ...TIMES])] : []),
    ...(queues.length > 0
      ? ["## One job per key at a time", tableOf(queues, [NAME, ...COMMON, ...JOBS, ...TIMES])]
      : []),
    "## Overlaps by the fault before them",
    tableOf(all, [NAME, ...([...FAULT_KINDS, "no fault"] as const).map(overlapsAfter)]),
    "## Configurations",
    ...all.map(configurationOf),
    "",
  ].join("\n\n");
}

function tableOf(all: readonly Tortured[], columns: readonly Column[]): string {
  const rows = [
    columns.map(([title]) => title),
    columns.map(() => "---"),
    ...all.map((each) => columns.map(([, value]) => value(each))),
  ];
  return rows.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function withoutText(runs: readonly Run[]): string {
  const kinds = runs[0]?.kinds;
  if (kinds === undefined) return "";
  return `, without ${FAULT_KINDS.filter((kind) => !kinds.includes(kind)).join(", ")}`;
}

function overlapsCell(tortured: Tortured): string {
  const overlaps = tortured.runs.flatMap(({ figures }) => figures.overlaps);
  return overlaps.length === 0
    ? "0"
    : `${overlaps.length}, ${seconds(Math.max(...overlaps.map(({ forMs }) => forMs)))}`;
}

function standstillsCell(standstills: readonly Standstill[]): string {
  return standstills.length === 0
    ? "0"
    : `${standstills.length}, ${seconds(Math.max(...standstills.map(({ forMs }) => forMs)))}`;
}

function recoveryCell({ runs }: Tortured): string {
  const times = runs.flatMap(({ figures }) => figures.recoveriesMs).toSorted((one, other) => one - other);
  const [median, longest] = [times[Math.floor(times.length / 2)], times.at(-1)];
  return median === undefined || longest === undefined
    ? "–"
    : `${seconds(median)}, ${seconds(longest)} (${times.length})`;
}

function overlapsAfter(fault: FaultKind | "no fault"): Column {
  return [fault, summed(({ overlaps }) => overlaps.filter(({ after }) => after === fault).length)];
}

function configurationOf({ system, version, runs }: Tortured): string {
  const errors = runs.flatMap(({ figures }) => Object.keys(figures.uncaught));
  return [
    `### ${system.title} ${version}`,
    `\`\`\`js\n${system.configuration}\n\`\`\``,
    `Lease: ${seconds(runs[0]?.leaseMs ?? 0)}. Asked before each step: ${system.question}. ${system.promises}`,
    `Again: ${runs.map((run) => `\`${commandOf(run)}\``).join(", ")}`,
    ...(errors.length > 0 ? [`Uncaught: ${[...new Set(errors)].map((text) => `\`${text}\``).join(", ")}`] : []),
  ].join("\n\n");
}

export function commandOf({ system, seed, faultyMs, kinds }: Run): string {
  const only = kinds === undefined ? "" : ` --faults "${kinds.join(",")}"`;
  return `npm run torture -- --system ${system} --seed ${seed} --minutes ${faultyMs / 60_000}${only}`;
}

/** Lists the broken promises of one of this project's own systems. */
export function brokenPromises({ overlaps, lostUpdates, jobs, standstills }: Figures): string[] {
  const counts = [
    ["overlaps", overlaps.length],
    ["lost updates", lostUpdates],
    ["jobs without effect at the end", jobs?.lost ?? 0],
    ["jobs out of order", jobs?.outOfOrder ?? 0],
    ["keys that stood at the end", standstills.filter(({ isOpen }) => isOpen).length],
  ] as const;
  return counts.filter(([, count]) => count > 0).map(([name, count]) => `${name}: ${count}`);
}

/** Returns a line about a run. */
export function summary({ figures }: Run): string {
  const { turns, faults, effects, overlaps, lostUpdates, refusedWrites, jobs, standstills, uncaught } = figures;
  return [
    `${totalOf(faults)} faults, ${turns} turns, ${effects} effects, ${overlaps.length} overlaps, ${lostUpdates} lost updates`,
    `${refusedWrites} late writes refused, ${standstills.length} standstills, ${totalOf(uncaught)} uncaught errors`,
    ...(jobs === undefined
      ? []
      : [
          `of ${jobs.added} jobs ${jobs.lost} without effect, ${jobs.repeatedEffects} effects repeated, ${jobs.outOfOrder} out of order`,
        ]),
  ].join("; ");
}
