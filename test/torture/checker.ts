/** Pure: computes the figures of the report from the recorded events. The checker knows no system. */
import { FAULT_KINDS, type FaultKind, type TortureEvent } from "./events.ts";

/** A turn that the system confirmed after the system had granted the key to another turn. */
export interface Overlap {
  readonly key: string;
  readonly who: string;
  /** The first process that was granted the key during this turn. */
  readonly other: string;
  readonly fromMs: number;
  readonly forMs: number;
  /**
   * The last fault that struck the process during its turn, or that ended for the other process just before its grant.
   * If there is none, the last fault of a server or of the other process whose effect may have reached the turn.
   */
  readonly after: FaultKind | "no fault";
}

export interface JobFigures {
  readonly added: number;
  /** Jobs that the queue had confirmed, and that had no effect until the end. */
  readonly lost: number;
  /** Effects of a job beyond its first. */
  readonly repeatedEffects: number;
  /** Jobs whose first effect came after one of a later job of their key. */
  readonly outOfOrder: number;
}

export interface Standstill {
  readonly key: string;
  readonly forMs: number;
  /** Whether nothing had ended it when the run ended. */
  readonly isOpen: boolean;
}

export interface Figures {
  readonly turns: number;
  readonly faults: Readonly<Partial<Record<FaultKind, number>>>;
  readonly overlaps: readonly Overlap[];
  readonly effects: number;
  /** Effects that replaced a counter other than the counter read by the same turn. */
  readonly lostUpdates: number;
  /** Late writes that the store refused by their fencing tokens. */
  readonly refusedWrites: number;
  readonly jobs: JobFigures | undefined;
  /** Times longer than `standstillMs` in which no process worked on a key although there was work. */
  readonly standstills: readonly Standstill[];
  /** For each turn that ended with its process: how long its key stood, in ascending order. */
  readonly recoveriesMs: readonly number[];
  /** Uncaught errors of all processes, by message. */
  readonly uncaught: Readonly<Record<string, number>>;
}

export interface CheckOptions {
  readonly endMs: number;
  readonly leaseMs: number;
  readonly standstillMs: number;
}

interface Interval {
  readonly turn: string;
  readonly who: string;
  readonly key: string;
  readonly fromMs: number;
  /** When the system last said that the turn goes on. */
  confirmedMs: number;
  endedMs: number | undefined;
}

type Of<Kind extends TortureEvent["kind"]> = Extract<TortureEvent, { kind: Kind }>;
type Fault = Of<"fault"> & { readonly mendedMs: number };

export function check(entries: readonly TortureEvent[], options: CheckOptions): Figures {
  const intervals = intervalsOf(entries);
  const faults = faultsOf(entries, options.endMs);
  const writes = ofKind(entries, "written");
  const effects = writes.filter(({ isAccepted }) => isAccepted);
  const keys = new Set(intervals.map(({ key }) => key));
  const added = ofKind(entries, "added");
  return {
    turns: intervals.length,
    faults: countedFaults(faults),
    overlaps: [...keys].flatMap((key) =>
      overlapsOf(
        intervals.filter((interval) => interval.key === key),
        faults,
        options.leaseMs,
      ),
    ),
    effects: effects.length,
    lostUpdates: effects.filter(({ read, found }) => read !== found).length,
    refusedWrites: writes.length - effects.length,
    jobs: added.length === 0 ? undefined : jobFiguresOf(added, effects),
    standstills: standstillsOf(intervals, added, effects, options),
    recoveriesMs: recoveriesOf(intervals, faults),
    uncaught: countedMessages(ofKind(entries, "uncaught")),
  };
}

function ofKind<Kind extends TortureEvent["kind"]>(entries: readonly TortureEvent[], kind: Kind): Of<Kind>[] {
  return entries.filter((entry): entry is Of<Kind> => entry.kind === kind);
}

function intervalsOf(entries: readonly TortureEvent[]): Interval[] {
  const intervals = new Map<string, Interval>();
  for (const entry of entries) {
    if (entry.kind === "granted") {
      const { turn, who, key, atMs } = entry;
      intervals.set(turn, { turn, who, key, fromMs: atMs, confirmedMs: atMs, endedMs: undefined });
    } else if (entry.kind === "confirmed" || entry.kind === "ended") {
      const interval = intervals.get(entry.turn);
      if (interval === undefined) continue;
      if (entry.kind === "confirmed") interval.confirmedMs = Math.max(interval.confirmedMs, entry.atMs);
      else interval.endedMs = entry.atMs;
    }
  }
  return [...intervals.values()].toSorted((one, other) => one.fromMs - other.fromMs);
}

function faultsOf(entries: readonly TortureEvent[], endMs: number): Fault[] {
  const mended = new Map(ofKind(entries, "mended").map(({ id, atMs }) => [id, atMs]));
  return ofKind(entries, "fault").map((fault) => ({ ...fault, mendedMs: mended.get(fault.id) ?? endMs }));
}

function countedFaults(faults: readonly Fault[]): Partial<Record<FaultKind, number>> {
  const counted = FAULT_KINDS.map((kind) => [kind, faults.filter(({ fault }) => fault === kind).length] as const);
  return Object.fromEntries(counted.filter(([, count]) => count > 0));
}

/** Of one key, in the order of their grants. */
function overlapsOf(intervals: readonly Interval[], faults: readonly Fault[], leaseMs: number): Overlap[] {
  return intervals.flatMap((turn, index): Overlap[] => {
    const next = intervals[index + 1];
    if (next === undefined || turn.confirmedMs <= next.fromMs) return [];
    const forMs = turn.confirmedMs - next.fromMs;
    const after = causeOf(turn, next, faults, leaseMs);
    return [{ key: turn.key, who: turn.who, other: next.who, fromMs: next.fromMs, forMs, after }];
  });
}

function causeOf(turn: Interval, next: Interval, faults: readonly Fault[], leaseMs: number): Overlap["after"] {
  const before = faults.filter(({ atMs }) => atMs <= next.fromMs).toSorted((one, other) => other.atMs - one.atMs);
  const own = before.find(({ who, mendedMs }) => who === turn.who && mendedMs >= turn.fromMs);
  // A grant that came too late is noticed when its process wakes up.
  const late = before.find(({ who, mendedMs }) => who === next.who && mendedMs + 0.1 * leaseMs >= next.fromMs);
  const others = before.find(
    ({ who, mendedMs }) => (who === undefined || who === next.who) && mendedMs + leaseMs >= turn.fromMs,
  );
  return (own ?? late ?? others)?.fault ?? "no fault";
}

function jobFiguresOf(added: readonly Of<"added">[], effects: readonly Of<"written">[]): JobFigures {
  const first = new Set<string>();
  const furthest = new Map<string, number>();
  let [repeatedEffects, outOfOrder] = [0, 0];
  for (const { key, job = 0 } of effects) {
    const id = `${key}-${job}`;
    if (first.has(id)) {
      repeatedEffects += 1;
      continue;
    }
    first.add(id);
    if (job < (furthest.get(key) ?? -1)) outOfOrder += 1;
    else furthest.set(key, job);
  }
  const lost = added.filter(({ key, job }) => !first.has(`${key}-${job}`)).length;
  return { added: added.length, lost, repeatedEffects, outOfOrder };
}

/** Locks are always wanted. A key of a queue is wanted while a job of it waits. */
function standstillsOf(
  intervals: readonly Interval[],
  added: readonly Of<"added">[],
  effects: readonly Of<"written">[],
  { endMs, standstillMs }: CheckOptions,
): Standstill[] {
  const isQueue = added.length > 0;
  const keys = new Set([...intervals, ...added].map(({ key }) => key));
  return [...keys].flatMap((key) => {
    const turns = intervals.filter((interval) => interval.key === key);
    const jobs = added.filter((each) => each.key === key);
    const done = new Set(effects.filter((each) => each.key === key).map(({ job }) => job));
    const endOfJob = new Map(effects.map(({ turn, job }) => [turn, job]));
    let workedUntilMs = isQueue ? (jobs[0]?.atMs ?? endMs) : (turns[0]?.fromMs ?? 0);
    const found: Standstill[] = [];
    const effectsSoFar = new Set<number | undefined>();
    for (const turn of turns) {
      const wantedMs = isQueue ? wantedSince(jobs, effectsSoFar) : 0;
      const forMs = turn.fromMs - Math.max(workedUntilMs, wantedMs ?? turn.fromMs);
      if (forMs > standstillMs) found.push({ key, forMs, isOpen: false });
      workedUntilMs = Math.max(workedUntilMs, turn.endedMs ?? turn.confirmedMs);
      if (endOfJob.has(turn.turn)) effectsSoFar.add(endOfJob.get(turn.turn));
    }
    const wantedMs = isQueue ? wantedSince(jobs, done) : 0;
    if (wantedMs === undefined) return found;
    const forMs = endMs - Math.max(workedUntilMs, wantedMs);
    return forMs > standstillMs ? [...found, { key, forMs, isOpen: true }] : found;
  });
}

/** When the first job that is not done was added; undefined if all are done. */
function wantedSince(jobs: readonly Of<"added">[], done: ReadonlySet<number | undefined>): number | undefined {
  return jobs.find(({ job }) => !done.has(job))?.atMs;
}

function recoveriesOf(intervals: readonly Interval[], faults: readonly Fault[]): number[] {
  const kills = faults.filter(({ fault }) => fault === "process killed");
  return intervals
    .flatMap((interval) => {
      if (interval.endedMs !== undefined) return [];
      const kill = kills.find(({ who, atMs }) => who === interval.who && atMs >= interval.confirmedMs);
      const next = intervals.find(
        ({ key, fromMs }) => key === interval.key && kill !== undefined && fromMs > kill.atMs,
      );
      return kill === undefined || next === undefined ? [] : [next.fromMs - kill.atMs];
    })
    .toSorted((one, other) => one - other);
}

function countedMessages(errors: readonly Of<"uncaught">[]): Record<string, number> {
  const counted: Record<string, number> = {};
  for (const { message } of errors) counted[message] = (counted[message] ?? 0) + 1;
  return counted;
}
