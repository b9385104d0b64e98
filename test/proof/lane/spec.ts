/**
 * The promises of the lane, as a small pure model of jobs and keys. The search changes the model with each step, and
 * compares it with Redis.
 */
import type { RedisFacts } from "./redis-state.ts";

export interface SpecJob {
  readonly keys: readonly string[];
  /** `running`: a live process was handed the job, and its end has not arrived. */
  readonly state: "waiting" | "running" | "ended" | "removed";
  /** Whether the job was handed out before. */
  readonly hasStarted: boolean;
  /** The job must not be handed out before this time. */
  readonly dueMs: number;
  /** Whether the job was cancelled while it ran. */
  readonly isCancelled: boolean;
}

export interface SpecKey {
  /** Jobs that have the key: from their first hand-out until they end or drop the key. */
  readonly owners: readonly string[];
  readonly slots: number;
  /** No job of the key is handed out before this time. */
  readonly pausedUntilMs: number;
  /** The job that has backed off, and is handed out next. */
  readonly firstId: string | undefined;
  /** Whether an owner was removed by hand, so that only a timer or a sweep passes the key on. */
  readonly isOrphaned: boolean;
}

export interface Spec {
  readonly jobs: Readonly<Record<string, SpecJob>>;
  readonly keys: Readonly<Record<string, SpecKey>>;
  /** The greatest fencing token that was granted. */
  readonly greatest: number;
}

export const UNPAUSED = Number.NEGATIVE_INFINITY;

export function startOf(keys: readonly string[], slots: number): Spec {
  const key = { owners: [], slots, pausedUntilMs: UNPAUSED, firstId: undefined, isOrphaned: false };
  return { jobs: {}, keys: Object.fromEntries(keys.map((name) => [name, key])), greatest: 0 };
}

export function add(spec: Spec, id: string, keys: readonly string[]): Spec {
  const job: SpecJob = { keys, state: "waiting", hasStarted: false, dueMs: 0, isCancelled: false };
  return { ...spec, jobs: { ...spec.jobs, [id]: job } };
}

export function jobOf(spec: Spec, id: string): SpecJob {
  const job = spec.jobs[id];
  if (job === undefined) throw new RangeError(`unknown ${id}`);
  return job;
}

export function keyOf(spec: Spec, name: string): SpecKey {
  const key = spec.keys[name];
  if (key === undefined) throw new RangeError(`unknown key ${name}`);
  return key;
}

export function changeJob(spec: Spec, id: string, change: Partial<SpecJob>): Spec {
  return { ...spec, jobs: { ...spec.jobs, [id]: { ...jobOf(spec, id), ...change } } };
}

export function changeKey(spec: Spec, name: string, change: Partial<SpecKey>): Spec {
  return { ...spec, keys: { ...spec.keys, [name]: { ...keyOf(spec, name), ...change } } };
}

function changeKeysOf(spec: Spec, id: string, change: (key: SpecKey) => Partial<SpecKey>): Spec {
  return jobOf(spec, id).keys.reduce((result, name) => changeKey(result, name, change(keyOf(result, name))), spec);
}

/** Returns why this job must not be handed out now. */
export function objectionTo(spec: Spec, id: string, nowMs: number): string | undefined {
  const job = spec.jobs[id];
  if (job === undefined || job.state === "ended" || job.state === "removed") return `${id} starts after it has ended`;
  if (job.state === "running") return `${id} starts while it runs`;
  if (job.dueMs > nowMs) return `${id} starts before it is due`;
  if (job.isCancelled) return `${id} was cancelled, and runs again`;
  for (const name of job.keys) {
    const { owners, slots, pausedUntilMs, firstId } = keyOf(spec, name);
    const others = owners.filter((owner) => owner !== id);
    if (others.length >= slots)
      return `${id} of key ${name} starts while ${others.join(" and ")} ${others.length === 1 ? "has" : "have"} the key`;
    if (pausedUntilMs > nowMs) return `${id} starts while key ${name} is paused`;
    if (firstId !== undefined && firstId !== id) return `${id} of key ${name} starts before ${firstId}`;
    const passed = job.hasStarted ? undefined : earlierOf(spec, id, name);
    if (passed !== undefined) return `${id} of key ${name} starts before ${passed}, which was added earlier`;
  }
  return undefined;
}

/** Returns a job that was added earlier and has not started yet. */
function earlierOf(spec: Spec, id: string, name: string): string | undefined {
  return Object.keys(spec.jobs).find((other) => {
    const { keys, state, hasStarted, isCancelled } = jobOf(spec, other);
    return numberOf(other) < numberOf(id) && keys.includes(name) && state === "waiting" && !hasStarted && !isCancelled;
  });
}

/** Hands a job out. `isSeen`: whether a process received the reply. */
export function handOut(spec: Spec, id: string, isSeen: boolean): Spec {
  const started = changeJob(spec, id, { hasStarted: true, state: isSeen ? "running" : "waiting" });
  return changeKeysOf(started, id, ({ owners }) => ({
    owners: [...new Set([...owners, id])].toSorted(),
    firstId: undefined,
    isOrphaned: false,
  }));
}

/** Ends a job, or lets it drop its keys for a while. */
export function dropKeys(spec: Spec, id: string, change: Partial<SpecJob>): Spec {
  const changed = changeJob(spec, id, change);
  return changeKeysOf(changed, id, ({ owners, firstId }) => ({
    owners: owners.filter((owner) => owner !== id),
    firstId: firstId === id ? undefined : firstId,
  }));
}

/** No job of this job's keys starts until then, if the job has them. */
export function pauseKeys(spec: Spec, id: string, untilMs: number): Spec {
  return changeKeysOf(spec, id, ({ owners, pausedUntilMs }) =>
    owners.includes(id) ? { pausedUntilMs: Math.max(pausedUntilMs, untilMs) } : {},
  );
}

/** No job of this job's keys starts until then. Afterwards the job starts first. */
export function backOff(spec: Spec, id: string, untilMs: number): Spec {
  const dropped = dropKeys(pauseKeys(spec, id, untilMs), id, { state: "waiting" });
  return changeKeysOf(dropped, id, () => ({ firstId: id }));
}

export function orphanKeys(spec: Spec, id: string): Spec {
  return changeKeysOf(spec, id, () => ({ isOrphaned: true }));
}

/** Returns a job that could start, although a fetch has found none. */
export function idleJob(spec: Spec, redis: RedisFacts, nowMs: number): string | undefined {
  const ids = Object.keys(spec.jobs).filter((id) => {
    const { state, dueMs, isCancelled } = jobOf(spec, id);
    // The lane's timers fire a millisecond late.
    return state === "waiting" && dueMs < nowMs && !isCancelled && !redis.active.includes(id);
  });
  const isFree = (id: string, name: string): boolean => {
    const { owners, slots, pausedUntilMs, firstId, isOrphaned } = keyOf(spec, name);
    const isOpen = pausedUntilMs < nowMs && !isOrphaned && (firstId === undefined || firstId === id);
    return isOpen && (owners.includes(id) ? owners.length <= slots : owners.length < slots);
  };
  return ids.find((id) =>
    jobOf(spec, id).keys.every((name) => {
      const isFirst = ids.every((other) => other === id || !sharesBefore(spec, other, id, name));
      return isFree(id, name) && isFirst;
    }),
  );
}

/** Reports whether another ready job may come first on this key. */
function sharesBefore(spec: Spec, other: string, id: string, name: string): boolean {
  const isOwner = keyOf(spec, name).owners.includes(id);
  return jobOf(spec, other).keys.includes(name) && !isOwner && numberOf(other) < numberOf(id);
}

/** Compares the lists of Redis with each other and with the model. Returns the first difference. */
export function difference(spec: Spec, redis: RedisFacts): string | undefined {
  for (const [id, job] of Object.entries(spec.jobs)) {
    const places = redis.placesOf(id);
    const allowed = placesFor(job);
    if (job.state === "removed" ? places.length > 0 : places.length !== 1 || !allowed.includes(places[0] ?? "")) {
      return `${id} is ${job.state}, and is in ${places.join(" and ") || "no list"}`;
    }
    const wrong = wrongLine(id, redis, Object.keys(spec.keys));
    if (wrong !== undefined) return wrong;
    if (job.state !== "running") continue;
    for (const name of job.keys) {
      if (!redis.holdersOf(name).includes(id)) return `${id} runs, and the lane does not know that it has key ${name}`;
    }
  }
  for (const [name, { isOrphaned }] of Object.entries(spec.keys)) {
    const mark = redis.hash("lane:holders").get(name);
    if (mark === undefined && (redis.lineOf(name).length > 0 || redis.holdersOf(name).length > 0)) {
      return `key ${name} is in use, and the lane takes it for free`;
    }
    if (redis.hash("lane:paused").has(name) !== (redis.pauseEndOf(name) !== undefined)) {
      return `the lists disagree on whether key ${name} is paused`;
    }
    for (const id of redis.holdersOf(name)) {
      const { state } = spec.jobs[id] ?? { state: "removed" };
      if (!isOrphaned && (state === "ended" || state === "removed"))
        return `key ${name} stays with ${id}, which has ended`;
    }
  }
  if (isDone(spec) && Object.values(spec.keys).every(({ pausedUntilMs }) => pausedUntilMs === UNPAUSED)) {
    const isOrphaned = Object.values(spec.keys).some((key) => key.isOrphaned);
    const left = redis.laneKeys;
    if (!isOrphaned && !redis.hasPolicies && left.length > 0)
      return `all jobs have ended, and ${left.join(", ")} is left`;
  }
  return undefined;
}

/** A job that is in the active list and that no process runs waits for the check for stalled jobs. */
function placesFor({ state }: SpecJob): readonly string[] {
  if (state === "running") return ["active"];
  return state === "ended" ? ["completed", "failed"] : ["wait", "prioritized", "delayed", "active"];
}

/** Returns how the line of a key and the place in the job's hash differ. */
function wrongLine(id: string, redis: RedisFacts, keys: readonly string[]): string | undefined {
  const fields = redis.job(id);
  const place = fields.get("ls");
  const own = (fields.get("lk") ?? "").split("\u001f");
  for (const name of keys) {
    const inLine = redis.lineOf(name).find(([other]) => other === id)?.[1];
    const expected = own.includes(name) ? place : undefined;
    if (fields.size > 0 && inLine !== expected) {
      return `${id} has place ${expected ?? "none"} for key ${name}, and place ${inLine ?? "none"} in its line`;
    }
  }
  return undefined;
}

/** Reports whether all jobs have ended. */
export function isDone(spec: Spec): boolean {
  return Object.values(spec.jobs).every(({ state }) => state === "ended" || state === "removed");
}

function numberOf(id: string): number {
  return Number(id.slice("job-".length));
}
