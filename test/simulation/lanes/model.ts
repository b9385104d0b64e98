/**
 * The expected state of every job and every key, updated step by step. checks.ts derives from the state which job may
 * be handed out next.
 */
import type { LaneRules } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { KeyPolicy } from "../../../packages/workers/src/operators/rules/key-policy.ts";
import { NEAR_MS } from "./setting.ts";
import type { HoldersByKey, Snapshot } from "./snapshot.ts";

/**
 * The outcome that the call of the job `by` has set for another job, which reports the outcome when its own turn ends.
 */
export interface MergedEnd {
  readonly by: string;
  readonly value: unknown;
  /** Message of the error with which the job fails. Undefined if the job completes. */
  readonly failure: string | undefined;
}

export interface ModelJob {
  readonly id: string;
  readonly keys: readonly string[];
  /** Position in the order in which the jobs were added. */
  readonly number: number;
  priority: number;
  readonly attempts: number;
  readonly parent: string | undefined;
  phase: "ready" | "running" | "delayed" | "waiting for children";
  /** When the job is due, if it is delayed. */
  dueMs: number;
  starts: number;
  /** The job's slot number for each of its keys, while the job has the keys. */
  slots: readonly number[];
  /** The job's place in line for its locks, which its next fetch must report. */
  lockPlace: number | undefined;
  /** Jobs that were in line when this job gave up its keys for a while, and therefore begin before it. */
  behind: readonly ModelJob[];
  /** Jobs that had a slot of a closed key when this job gave up its own slot. They may begin before this job. */
  readonly passedBy: Set<string>;
  /**
   * Keys in whose line the job's place is unknown: the place was lost or chosen by hand, or the job is delayed or LIFO.
   */
  readonly displaced: Set<string>;
  /** Whether a newer job with the same keys waits, so that this job must not run (again). */
  isSuperseded: boolean;
  /** Whether the job was cancelled while it ran, so that it can only fail. */
  isCancelled: boolean;
  /** Whether the job has left its line for a later job (`drop: "oldest"`), and this end has not been reported yet. */
  isLeaving: boolean;
  /**
   * Whether the job has joined a line since it last began. The lane has put the job into `delayed`, and puts it in
   * front at its turn.
   */
  isParked: boolean;
  /**
   * Whether the job counts as a new arrival: retried by hand, released by its children, or delayed by its processor.
   */
  isAnew: boolean;
  /**
   * Jobs with a higher number arrived after this job. If the job arrived anew, these are the jobs that were added after
   * it began.
   */
  newestBefore: number;
  /** The outcome that another job's call has set for this job. The job does not run, and ends with this outcome. */
  outcome: MergedEnd | undefined;
}

export interface ModelKey {
  /** Jobs that were handed out and still have the key: they run, have stalled, or wait for their retry or lock. */
  readonly owners: Set<string>;
  /**
   * The stop during which no job of the key starts. `failed`: the job that stopped the key, which goes first if it is
   * retried by hand. `isVague`: whether the mark of this job was deleted by hand.
   */
  stop: { failed: string | undefined; isVague: boolean; untilMs: number } | undefined;
  /** Until this time the key may depend on the timers of its jobs. */
  healsAtMs: number;
  /** Until this time the first job of a lost line may wait: the end of the pause or limit at the time of the loss. */
  timedUntilMs: number;
  /** The end of limits that operators have replaced. The first job in line may still have its timer at this time. */
  formerLimitMs: number;
  /** The policy that operators have set for the key. */
  policy: KeyPolicy | undefined;
  /** Number of jobs in the key's line after the previous step. */
  standing: number;
  /** The greatest number of slots that the key has had. */
  mostSlots: number;
  /**
   * Whether the key had more slots before. A job that arrives while more jobs than allowed have the key may give its
   * slot up.
   */
  wasLowered: boolean;
  /** The latest starts of jobs, the newest last. */
  readonly starts: { readonly id: string; readonly atMs: number }[];
  /**
   * Whether no job was lost from the key's line. The first job in line is then due exactly when a pause ends, or the
   * rate allows it.
   */
  isExact: boolean;
  /** Whether the line was deleted by hand. The jobs of the lost line return to it, even beyond its limit. */
  wasLost: boolean;
  /**
   * Whether its jobs have no other key, and no place in its line was lost, paused or removed. The first job in line
   * then starts within one interval.
   */
  isRegular: boolean;
}

/** No key has more slots in a schedule, even if the queue is watched. */
const MOST_WATCHED = 130;

export class LaneModel {
  /** Jobs that have neither completed, nor failed for good, nor been removed. */
  readonly open = new Map<string, ModelJob>();
  readonly keys: ReadonlyMap<string, ModelKey>;
  /** Jobs that were put in front of the queue. */
  readonly front = new Set<string>();
  readonly #onFailure: LaneRules["onFailure"];
  readonly #rate: LaneRules["rate"];
  readonly #line: LaneRules["line"];
  readonly #isMerging: boolean;
  /** How many jobs of a key may run at a time, unless an operator has set a policy. */
  readonly slots: number;
  /** Whether any line has had a limit so far. `dropsOldest`: whether a job could leave a line for a later job. */
  limitsLines: boolean;
  dropsOldest: boolean;
  isWatched = false;
  #added = 0;

  constructor(
    keys: readonly string[],
    { onFailure, rate, line, merge, slots = 1 }: Pick<LaneRules, "onFailure" | "rate" | "line" | "merge" | "slots">,
  ) {
    this.#onFailure = onFailure;
    this.#rate = rate;
    this.#line = line;
    this.#isMerging = merge !== undefined;
    this.limitsLines = line !== undefined;
    this.dropsOldest = line?.drop === "oldest";
    this.slots = slots;
    const fresh = (): ModelKey => ({
      owners: new Set(),
      stop: undefined,
      healsAtMs: 0,
      timedUntilMs: 0,
      formerLimitMs: 0,
      policy: undefined,
      standing: Number.POSITIVE_INFINITY,
      mostSlots: slots,
      wasLowered: false,
      starts: [],
      isExact: true,
      wasLost: false,
      isRegular: true,
    });
    this.keys = new Map(keys.map((key) => [key, fresh()]));
  }

  key(name: string): ModelKey {
    const key = this.keys.get(name);
    if (key === undefined) throw new RangeError(`unknown key ${name}`);
    return key;
  }

  /** Returns how many jobs of the key may run at a time. While the queue is watched, any number. */
  slotsOf(name: string): number {
    return this.isWatched ? Number.POSITIVE_INFINITY : this.allowedOf(name);
  }

  /** Returns how many jobs of the key exclusion would allow at a time. */
  allowedOf(name: string): number {
    return this.key(name).policy?.concurrency ?? this.slots;
  }

  /** Begins or ends to watch the queue. The order of the jobs that are in the queue now no longer counts. */
  watch(isWatched: boolean): void {
    // With merged calls, the lane is always exclusive.
    if (this.#isMerging || isWatched === this.isWatched) return;
    this.isWatched = isWatched;
    for (const [name, key] of this.keys) {
      key.mostSlots = MOST_WATCHED;
      key.wasLowered = true;
      this.#displace(name);
    }
  }

  get mostSlots(): number {
    return Math.max(...[...this.keys.values()].map(({ mostSlots }) => mostSlots));
  }

  get hasRates(): boolean {
    return [...this.keys.keys()].some((name) => this.#rateOf(name) !== undefined);
  }

  /** Reports whether a job of a lost line waits for the end of a pause or limit. */
  isTimed(nowMs: number): boolean {
    return [...this.keys.values()].some(({ timedUntilMs }) => timedUntilMs > nowMs);
  }

  #rateOf(name: string): LaneRules["rate"] {
    return this.key(name).policy?.rate ?? this.#rate;
  }

  /** Returns how many jobs may be in line for the key, and which job does not run if the line is full. */
  lineOf(name: string): LaneRules["line"] {
    const said =
      this.#line === undefined || this.#line.as === "backlog" ? this.key(name).policy?.maxWaiting : undefined;
    if (said === undefined) return this.#line;
    const isOldest = said.drop === "oldest" && !this.#isMerging;
    return { max: said.max, drop: isOldest ? "oldest" : "newest", as: "backlog" };
  }

  setPolicy(name: string, policy: KeyPolicy | undefined): void {
    const key = this.key(name);
    const before = this.allowedOf(name);
    key.formerLimitMs = Math.max(key.formerLimitMs, this.limitedUntilMs(name));
    key.policy = policy;
    const slots = this.allowedOf(name);
    key.wasLowered ||= slots < before;
    this.limitsLines ||= this.lineOf(name) !== undefined;
    this.dropsOldest ||= this.lineOf(name)?.drop === "oldest";
    key.mostSlots = Math.max(key.mostSlots, slots);
  }

  job(id: string): ModelJob {
    const job = this.open.get(id);
    if (job === undefined) throw new RangeError(`job ${id} has ended`);
    return job;
  }

  owns(job: ModelJob): boolean {
    return job.keys.every((name) => this.key(name).owners.has(job.id));
  }

  inPhase(...phases: readonly ModelJob["phase"][]): ModelJob[] {
    return [...this.open.values()].filter((job) => phases.includes(job.phase));
  }

  /** Adds a job. A job with the ID of a removed job inherits nothing from it. */
  add(facts: Pick<ModelJob, "id" | "keys" | "priority" | "attempts" | "parent">): void {
    this.#added += 1;
    const state = {
      phase: "ready",
      dueMs: 0,
      starts: 0,
      slots: [],
      lockPlace: undefined,
      behind: [],
      passedBy: new Set<string>(),
      isSuperseded: false,
      isCancelled: false,
      isLeaving: false,
      isParked: false,
      isAnew: false,
      outcome: undefined,
    } as const;
    const job = { ...facts, ...state, displaced: new Set(this.isWatched ? facts.keys : []) };
    this.open.set(facts.id, { ...job, number: this.#added, newestBefore: this.#added });
    for (const name of facts.keys) {
      const key = this.key(name);
      if (facts.keys.length > 1) key.isRegular = key.isExact = false;
    }
  }

  /**
   * Delays a job that is being added. Its place among the jobs of its keys is determined at the moment when the job is
   * due.
   */
  delay(id: string, dueMs: number): void {
    const job = this.job(id);
    job.phase = "delayed";
    job.dueMs = dueMs;
    for (const name of job.keys) job.displaced.add(name);
  }

  /**
   * Changes the priority of a job. Its place among the jobs of its keys is determined at the moment when the job is
   * fetched.
   */
  reprioritize(job: ModelJob, priority: number, toFront: boolean): void {
    job.priority = priority;
    for (const name of job.keys) job.displaced.add(name);
    if (toFront && priority === 0) this.front.add(job.id);
    else this.front.delete(job.id);
  }

  /** `atMs` is undefined for a job that ends without running. */
  begin(job: ModelJob, atMs: number | undefined, slots: readonly number[]): void {
    job.phase = "running";
    job.slots = slots;
    job.starts += 1;
    job.lockPlace = undefined;
    job.behind = [];
    job.isParked = false;
    if (job.newestBefore === Number.POSITIVE_INFINITY) job.newestBefore = this.#added;
    this.front.delete(job.id);
    for (const name of job.keys) {
      const key = this.key(name);
      key.owners.add(job.id);
      const rate = this.#rateOf(name);
      if (atMs === undefined || rate === undefined) continue;
      key.starts.push({ id: job.id, atMs });
      key.starts.splice(0, key.starts.length - rate.max);
    }
  }

  /** Returns the time until which the key's rate lets no job begin. */
  limitedUntilMs(name: string): number {
    const { max, duration } = this.#rateOf(name) ?? { max: 1, duration: Number.NEGATIVE_INFINITY };
    return (this.key(name).starts.at(-max)?.atMs ?? Number.NEGATIVE_INFINITY) + duration;
  }

  /**
   * Returns the time until which the key may stand still after `untilMs`, because it depends on the timers of its jobs.
   */
  dueMs(name: string, untilMs: number = this.limitedUntilMs(name)): number {
    const key = this.key(name);
    return Math.max(key.healsAtMs, key.isExact ? untilMs : untilMs + this.#intervals(key) * NEAR_MS);
  }

  /** Completes a job. */
  complete(job: ModelJob): void {
    this.#giveUp(job);
    this.#end(job);
  }

  failForGood(job: ModelJob): void {
    for (const name of this.#onFailure === "halt" && !this.isWatched ? job.keys : []) {
      const key = this.key(name);
      if (key.owners.has(job.id)) key.stop = { failed: job.id, isVague: false, untilMs: Number.POSITIVE_INFINITY };
    }
    this.complete(job);
  }

  /** Postpones a job: until the end of its backoff, or until a time that its processor has chosen. */
  postpone(job: ModelJob, why: "retry" | "delay", dueMs: number, { states }: Snapshot): void {
    if (why === "delay" || this.#onFailure === "skip") {
      this.#giveUp(job);
      job.behind = this.inPhase("ready").filter(({ id }) => states.get(id) === "delayed");
    }
    job.phase = "delayed";
    job.dueMs = dueMs;
    if (why === "delay") this.#comesAnew(job);
  }

  /** Moves a job back to `delayed` with its keys until its lock is free. The start does not count. */
  yieldTo(job: ModelJob, place: number, dueMs: number): void {
    job.phase = "delayed";
    job.dueMs = dueMs;
    job.lockPlace = place;
    job.starts -= 1;
    for (const name of job.keys) {
      const { starts } = this.key(name);
      const index = starts.findLastIndex(({ id }) => id === job.id);
      if (index >= 0 && this.#rateOf(name) !== undefined) starts.splice(index, 1);
    }
  }

  /** Moves a job back to the head of its lines. Until `untilMs` no job of its keys starts. The start does not count. */
  backOff(job: ModelJob, untilMs: number, holders: HoldersByKey): void {
    job.phase = "ready";
    job.starts -= 1;
    for (const name of job.keys) {
      const has = holders.get(name);
      if (has?.has(job.id) === true) this.stop(name, untilMs);
      // The job's key was lost and other jobs received it. The job goes in front of these jobs, even if they have
      // backed off.
      else for (const { id } of this.inPhase("ready")) if (has?.has(id) !== true) this.key(name).owners.delete(id);
    }
    // The next job may already have a slot.
    for (const name of job.keys) if (this.key(name).mostSlots > 1) job.displaced.add(name);
  }

  waitForChildren(job: ModelJob): void {
    this.#giveUp(job);
    this.#comesAnew(job);
    job.phase = "waiting for children";
  }

  /** Marks that no worker runs the job any more. The job keeps its keys. */
  stalled(job: ModelJob): void {
    job.phase = "ready";
    this.front.add(job.id);
  }

  /** Brings a delayed job back before its time. `toFront`: whether the lane does so, and puts the job in front. */
  hurry(job: ModelJob, nowMs: number, toFront: boolean): void {
    job.dueMs = Math.min(job.dueMs, nowMs);
    if (toFront) this.front.add(job.id);
  }

  /** BullMQ puts a LIFO job in front again if the job is retried immediately. */
  retryAtOnce(job: ModelJob, lifo: boolean | undefined): void {
    if (lifo === true && job.priority === 0) this.front.add(job.id);
  }

  /** Lets a job that has ended run again. */
  reopen(job: ModelJob): void {
    job.phase = "ready";
    job.isSuperseded = false;
    job.isCancelled = false;
    this.#comesAnew(job);
    // A job that was cancelled before it started comes after jobs that were added later.
    if (job.starts === 0) for (const name of job.keys) job.displaced.add(name);
    this.open.set(job.id, job);
    for (const name of job.keys) {
      const key = this.key(name);
      if (key.stop?.failed === job.id && !key.stop.isVague) key.owners.add(job.id);
    }
  }

  #comesAnew(job: ModelJob): void {
    job.isAnew = true;
    job.newestBefore = Number.POSITIVE_INFINITY;
  }

  /** Marks that a newer job with the same keys waits, so that this job does not run again. */
  supersede(job: ModelJob, nowMs: number): void {
    if (job.isSuperseded) return;
    job.isSuperseded = true;
    if (job.phase === "delayed" && job.dueMs > nowMs) this.hurry(job, nowMs, true);
    for (const name of job.keys) job.displaced.add(name);
  }

  /** Removes a job without notice to the lane: an operator removes it, or a client without keys finishes it. */
  vanish(job: ModelJob, nowMs: number, holders: HoldersByKey): void {
    for (const name of job.keys) {
      const key = this.key(name);
      key.isExact = false;
      if (job.keys.length > 1 || holders.get(name)?.has(job.id)) this.heal(name, nowMs);
      else if (job.phase !== "running") {
        key.isRegular = false;
        // A removed job still has the key, and the timer of this job could have passed the key on.
        if (this.#isLeftBehind(holders.get(name))) this.heal(name, nowMs);
      }
    }
    this.#giveUp(job);
    this.#end(job);
  }

  #isLeftBehind(holders: Iterable<string> = []): boolean {
    return [...holders].some((id) => !id.startsWith("!:") && !this.open.has(id));
  }

  heal(name: string, nowMs: number): void {
    const key = this.key(name);
    key.healsAtMs = Math.max(key.healsAtMs, nowMs + this.#intervals(key) * NEAR_MS);
  }

  #intervals({ isRegular }: ModelKey): number {
    return isRegular ? 1 : 2 * (this.open.size + 2);
  }

  stop(name: string, untilMs: number): void {
    const key = this.key(name);
    key.isRegular = false;
    if (key.stop === undefined) key.stop = { failed: undefined, isVague: false, untilMs };
    else key.stop.untilMs = Math.max(key.stop.untilMs, untilMs);
  }

  /** Ends the pauses that are over at `nowMs`. */
  endPauses(nowMs: number): void {
    for (const [name, key] of this.keys) {
      // If the mark was lost, its end is lost as well. The lane's timers fire a millisecond later.
      if (key.stop === undefined || key.stop.isVague || key.stop.untilMs >= nowMs) continue;
      if (!key.isExact) this.heal(name, key.stop.untilMs);
      key.stop = undefined;
    }
  }

  resume(name: string): void {
    this.key(name).stop = undefined;
  }

  /** The lane's counter of arrivals was deleted by hand. */
  loseCounter(): void {
    for (const job of this.open.values()) for (const name of job.keys) job.displaced.add(name);
  }

  #displace(name: string): void {
    for (const job of this.open.values()) if (job.keys.includes(name)) job.displaced.add(name);
  }

  /**
   * The key's line was deleted by hand, together with the claim of the job that kept its place because the key is
   * stopped.
   */
  loseLine(name: string, nowMs: number, holders: HoldersByKey): void {
    const key = this.key(name);
    key.isRegular = key.isExact = false;
    key.wasLost = true;
    if (key.stop !== undefined) key.stop.isVague = true;
    for (const id of key.owners) if (!holders.get(name)?.has(id)) key.owners.delete(id);
    // The first job in line has its timer at the latest of these ends, even if a pause or limit is lifted earlier,
    // because the line that the lift would look at is gone.
    const ends = [this.limitedUntilMs(name), key.formerLimitMs, key.stop?.untilMs ?? 0].filter(Number.isFinite);
    key.timedUntilMs = Math.max(key.timedUntilMs, ...ends);
    this.heal(name, Math.max(nowMs, key.timedUntilMs));
    this.#displace(name);
  }

  /** The holders of all keys were deleted by hand, so running jobs have no claim any more. */
  loseHolders(nowMs: number): void {
    this.watch(false);
    for (const [name, key] of this.keys) {
      this.loseLine(name, nowMs, new Map());
      key.owners.clear();
      this.setPolicy(name, undefined);
    }
  }

  /**
   * Finds the jobs that were parked, or were given their keys, in this step. Jobs that were in `delayed` go to the
   * front of the queue.
   */
  observe(before: Snapshot, after: Snapshot, nowMs: number): void {
    // Only the lane puts a job into `delayed` for longer than its own delay.
    for (const [id, dueMs] of after.dues) {
      const job = this.open.get(id);
      if (job !== undefined && dueMs > job.dueMs) job.isParked = true;
    }
    for (const job of this.inPhase("ready")) {
      if ((before.dues.get(job.id) ?? nowMs) <= nowMs || after.states.get(job.id) !== "wait") continue;
      if (job.keys.every((key) => after.holders.get(key)?.has(job.id))) this.front.add(job.id);
    }
    for (const id of this.front) if (after.states.get(id) !== "wait") this.front.delete(id);
    if (this.mostSlots > 1) this.observeGivenUp(after, nowMs);
  }

  /** If several jobs have stalled while a key is closed, any job may be first when the key opens. */
  observeGivenUp({ holders }: Snapshot, nowMs: number): void {
    const isClosed = (name: string): boolean => this.key(name).stop !== undefined || this.limitedUntilMs(name) > nowMs;
    const mayBeGivenUp = (name: string): boolean => isClosed(name) || this.key(name).wasLowered;
    const hasCome = ({ phase, dueMs }: ModelJob): boolean => phase === "ready" || dueMs <= nowMs;
    for (const job of this.inPhase("ready", "delayed").filter(({ keys }) => keys.some(mayBeGivenUp))) {
      if (!hasCome(job)) continue;
      for (const name of job.keys) {
        const { owners, wasLowered } = this.key(name);
        if (holders.get(name)?.has(job.id) === true) continue;
        // If several jobs wait for their lock and the slots were lowered, any job may continue.
        if (wasLowered && owners.size > this.slotsOf(name)) job.displaced.add(name);
        const gaveUp = owners.delete(job.id);
        // If more jobs than allowed have the key, the job that was chosen last gives way.
        if (gaveUp && isClosed(name)) for (const id of holders.get(name) ?? []) job.passedBy.add(id);
      }
    }
  }

  #giveUp(job: ModelJob): void {
    for (const name of job.keys) {
      const key = this.key(name);
      key.owners.delete(job.id);
    }
  }

  #end(job: ModelJob): void {
    this.open.delete(job.id);
    this.front.delete(job.id);
    const parent = job.parent === undefined ? undefined : this.open.get(job.parent);
    if (parent?.phase !== "waiting for children") return;
    parent.phase = "ready";
    this.front.add(parent.id);
  }
}
