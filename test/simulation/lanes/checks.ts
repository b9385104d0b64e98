/** The invariants of the lanes. Each function throws a `LaneViolation` if its invariant does not hold. */
import type { LaneModel, ModelJob, ModelKey } from "./model.ts";
import type { BullState, Snapshot } from "./snapshot.ts";

export type Invariant =
  /** More jobs of a key run at a time than the key has slots, or two jobs are in one slot. */
  | "exclusion"
  /**
   * A key was given to another job, although its job has stalled, or waits for its retry (`block`, `halt`) or its lock.
   */
  | "kept key"
  | "order"
  /** A line is longer than its limit, or a job was refused although its line had room. */
  | "line"
  /** A job was in two calls, or ended with another outcome than its call has set. */
  | "merge"
  /** More jobs of a key started in a window than its rate allows. */
  | "key rate"
  /** While a key waited for its turn, another key started more jobs than its weight. */
  | "rotation"
  /** A job started on a key that is paused, or stopped by a failure (`halt`). */
  | "stopped key"
  /** A job was handed out twice, or before it was due. */
  | "handed out once"
  /** A job that could run was not handed out. */
  | "nothing stuck"
  /** A job that was given its key, or has stalled, was handed out after other waiting jobs. */
  | "next in front"
  /** A job is nowhere, in two states, or in a wrong state. */
  | "nothing lost"
  /** The delay of a job that waits for its retry or its time has changed. */
  | "delay kept"
  /** Parking or yielding counted as an attempt. */
  | "counting"
  /** The lane reports a wrong fact about the job. */
  | "facts"
  /** A process that had lost its job could still end the job. */
  | "late end"
  /** Keys of the lane stay forever. */
  | "nothing left behind"
  /** More jobs started, or ran at a time, than BullMQ's limits allow, or BullMQ counted wrongly. */
  | "queue limits"
  /** A lock was acquired or released although it should not have been, or not on the expected key. */
  | "lock"
  /** The fencing token of a grant is not above the token of the previous grant. */
  | "fencing"
  /** A job that was cancelled completed, waited or ran again, or a job was told so that was not cancelled. */
  | "cancellation"
  /** A command failed. */
  | "no error";

export class LaneViolation extends Error {
  readonly invariant: Invariant;

  constructor(invariant: Invariant, message: string, options?: ErrorOptions) {
    super(message, options);
    this.invariant = invariant;
  }
}

export interface HandOut {
  readonly id: string;
  readonly keys: readonly string[];
  readonly lockPlace: number | undefined;
  readonly attemptsStarted: number;
  /** The job's slot number for each key. */
  readonly slots: readonly number[];
}

export function checkHandOut(model: LaneModel, handOut: HandOut, before: Snapshot, nowMs: number): void {
  const job = checkOnce(model, handOut, nowMs);
  for (const name of job.keys) checkKey(model, job, name, nowMs);
  for (const [index, name] of handOut.keys.entries()) checkSlot(model, job, name, handOut.slots[index]);
  checkFront(model, job, before, nowMs);
  if (handOut.lockPlace !== job.lockPlace || handOut.keys.join() !== job.keys.toSorted().join()) {
    throw new LaneViolation(
      "facts",
      `${job.id} came with keys ${handOut.keys.join()} and place ${handOut.lockPlace ?? "none"}`,
    );
  }
}

/** Checks a hand-out, even of a job that does not run. */
export function checkOnce(model: LaneModel, handOut: HandOut, nowMs: number): ModelJob {
  const { id } = handOut;
  const job = model.open.get(id);
  if (job === undefined) throw new LaneViolation("handed out once", `${id} came after it had ended`);
  if (job.phase === "running") throw new LaneViolation("handed out once", `${id} came while it runs`);
  if (job.phase === "waiting for children")
    throw new LaneViolation("handed out once", `${id} came before its children`);
  if (job.phase === "delayed" && job.dueMs > nowMs) throw new LaneViolation("handed out once", `${id} came too early`);
  if (handOut.attemptsStarted !== job.starts + 1) {
    throw new LaneViolation("counting", `${id} was started ${job.starts + 1} times, not ${handOut.attemptsStarted}`);
  }
  return job;
}

function checkKey(model: LaneModel, job: ModelJob, name: string, nowMs: number): void {
  const { owners, stop } = model.key(name);
  const others = [...owners].filter((owner) => owner !== job.id);
  if (others.length >= model.slotsOf(name)) {
    const phases = others.map((owner) => model.job(owner).phase);
    const invariant = phases.every((phase) => phase === "running") ? "exclusion" : "kept key";
    const whose = `${others.join(", ")} have it and are ${phases.join(", ")}`;
    throw new LaneViolation(invariant, `${job.id} of ${name} was handed out, but ${whose}`);
  }
  if (isStopped(stop, nowMs))
    throw new LaneViolation("stopped key", `${job.id} was handed out, but ${name} is stopped`);
  // A job that a call has settled does not start.
  const untilMs = job.outcome === undefined ? model.limitedUntilMs(name) : nowMs;
  if (untilMs > nowMs) throw new LaneViolation("key rate", `${job.id} of ${name} came ${untilMs - nowMs} ms too early`);
  for (const other of model.open.values()) {
    if (!other.keys.includes(name) || other.starts > 0 || !isOrdered(other, job, name)) continue;
    // The other job was handed out before and waits for its lock, which plain code holds. The job waits in its slot,
    // or, if it gave up the slot because the key was closed, in front of the line. Meanwhile two kinds of jobs
    // continue: a job that was handed out behind it, even after a wait for its own lock, and a job that had received a
    // slot by then.
    const mayPass = owners.has(job.id) || job.lockPlace !== undefined || other.passedBy.has(job.id);
    if (owners.has(other.id) || (other.lockPlace !== undefined && mayPass)) continue;
    const isPassed = job.starts === 0 ? other.number < job.number : job.behind.includes(other);
    if (isPassed) throw new LaneViolation("order", `${job.id} of ${name} began before ${other.id}`);
  }
}

/** Checks that the slot, which has a lock of its own, is free, and that a job that keeps its key stays in its slot. */
function checkSlot(model: LaneModel, job: ModelJob, name: string, slot: number | undefined): void {
  const { owners, mostSlots } = model.key(name);
  const refuse = (why: string): never => {
    throw new LaneViolation("exclusion", `${job.id} came in slot ${slot} of ${name}, ${why}`);
  };
  if (slot === undefined || slot >= mostSlots) return refuse(`and there are ${mostSlots}`);
  for (const owner of owners) {
    const other = model.job(owner);
    const own = other.slots[other.keys.toSorted().indexOf(name)];
    if (owner !== job.id && own === slot) refuse(`which ${owner} has`);
    // While more jobs than allowed have a key, the end of another job may take the slots from a job with several keys, and
    // give it free slots.
    const mayMove = job.keys.length > 1 && job.keys.some((key) => model.key(key).wasLowered);
    if (owner === job.id && own !== slot && !mayMove) refuse(`but has slot ${own}`);
  }
}

/**
 * Reports whether this key keeps the two jobs in order. Jobs of different priority, and a job with one key and a job
 * with several keys of such a priority, may begin in any order.
 */
export function isOrdered(a: ModelJob, b: ModelJob, key: string): boolean {
  if (a.displaced.has(key) || b.displaced.has(key)) return false;
  const isAlike = a.keys.length > 1 === b.keys.length > 1;
  return a.priority === b.priority && (isAlike || a.priority === 0);
}

/**
 * Of the jobs that wait in the queue itself, a job comes first if it has its keys, was put in front and may run. Only
 * jobs that are put in front later come before it. Such a later job may be a job in line that is given its key and
 * handed out in this very step: its timer may have brought it back to `wait`, further back, from where the lane puts it
 * in front.
 */
function checkFront(model: LaneModel, job: ModelJob, { states, holders }: Snapshot, nowMs: number): void {
  const hasKeys = ({ id, keys }: ModelJob): boolean => keys.every((key) => holders.get(key)?.has(id));
  const mayRun = ({ keys }: ModelJob): boolean =>
    keys.every((name) => {
      const { stop, wasLowered } = model.key(name);
      return stop === undefined && !wasLowered && model.limitedUntilMs(name) <= nowMs;
    });
  if (states.get(job.id) !== "wait" || job.isParked || model.front.has(job.id) || hasKeys(job)) return;
  const passed = [...model.front].find((id) => {
    const other = model.job(id);
    return states.get(id) === "wait" && hasKeys(other) && mayRun(other);
  });
  if (passed !== undefined) throw new LaneViolation("next in front", `${job.id} came before ${passed}`);
}

/** Nothing was handed out, so no job can have been ready. */
export function checkIdle(model: LaneModel, nowMs: number): void {
  const ready = [...model.open.values()].filter(
    (job) => job.phase === "ready" || (job.phase === "delayed" && job.dueMs <= nowMs),
  );
  const isFree = (job: ModelJob): boolean =>
    job.keys.every((name) => {
      const key = model.key(name);
      // A job that a call has settled does not start. If other jobs were lost, its line may be due only when a job may
      // start.
      const untilMs = job.outcome !== undefined && key.isExact ? 0 : model.limitedUntilMs(name);
      // The lane's timers fire a millisecond later.
      if (key.stop !== undefined || untilMs >= nowMs) return false;
      const slots = model.slotsOf(name);
      const isOpen = key.owners.size < slots && model.dueMs(name, untilMs) < nowMs;
      return (key.owners.has(job.id) && key.owners.size <= slots) || isOpen;
    });
  for (const job of ready) {
    const isNext = ready.every((other) => other === job || isPassedBy(other, job));
    if (isFree(job) && (model.owns(job) || isNext))
      throw new LaneViolation("nothing stuck", `${job.id} could run, and does not`);
  }
  for (const group of groupsOf(ready)) {
    if (!group.every(isFree)) continue;
    // A job that returns to a lost line may be in front of jobs with several keys, which then need its timer.
    if (group.some(({ displaced }) => displaced.size > 0) && group.some(({ keys }) => keys.length > 1)) continue;
    throw new LaneViolation(
      "nothing stuck",
      `none of ${group.map(({ id }) => id).join(", ")} runs, and their keys are free`,
    );
  }
}

/** Reports whether `job`, which has not begun, certainly comes before `other` on every key that they share. */
function isPassedBy(other: ModelJob, job: ModelJob): boolean {
  const shared = job.keys.filter((name) => other.keys.includes(name));
  return shared.every(
    (name) =>
      job.starts === 0 &&
      other.starts === 0 &&
      job.priority === 0 &&
      other.priority === 0 &&
      job.number < other.number &&
      isOrdered(job, other, name),
  );
}

/** Groups jobs that may wait for each other, because they share keys. */
function groupsOf(jobs: readonly ModelJob[]): ModelJob[][] {
  const groups: ModelJob[][] = [];
  for (const job of jobs) {
    const touched = groups.filter((group) => group.some(({ keys }) => keys.some((name) => job.keys.includes(name))));
    for (const group of touched) groups.splice(groups.indexOf(group), 1);
    groups.push([...touched.flat(), job]);
  }
  return groups;
}

function isStopped(stop: ModelKey["stop"], nowMs: number): boolean {
  return stop !== undefined && !stop.isVague && stop.untilMs > nowMs;
}

const STATES: Readonly<Record<ModelJob["phase"], readonly BullState[]>> = {
  ready: ["wait", "prioritized", "delayed"],
  running: ["active"],
  delayed: ["wait", "prioritized", "delayed"],
  "waiting for children": ["waiting-children"],
};

export function checkStates(model: LaneModel, { states, doubles, dues }: Snapshot, nowMs: number): void {
  const [double] = doubles;
  if (double !== undefined) throw new LaneViolation("nothing lost", `${double} is in two states`);
  for (const job of model.open.values()) {
    const state = states.get(job.id);
    if (state === undefined || !STATES[job.phase].includes(state)) {
      throw new LaneViolation("nothing lost", `${job.id} should be ${job.phase} and is ${state ?? "nowhere"}`);
    }
    const early = job.dueMs - (dues.get(job.id) ?? job.dueMs);
    if (job.phase === "delayed" && job.dueMs > nowMs && early !== 0) {
      throw new LaneViolation("delay kept", `${job.id} will come ${early} ms too early`);
    }
  }
  for (const [id, state] of states) {
    if (!model.open.has(id)) throw new LaneViolation("nothing lost", `${id} has ended, and is ${state}`);
  }
}
