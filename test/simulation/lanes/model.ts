/** What should be true of every job and every key, told step by step; what it means for the next hand-out is in checks.ts. */
import type { LaneRules } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { KeyPolicy } from "../../../packages/workers/src/operators/rules/key-policy.ts";
import { NEAR_MS } from "./setting.ts";
import type { Holders, Snapshot } from "./snapshot.ts";

/** What the call of `by` has made of the job, as it is to be told when that ends. */
export interface MergedEnd {
  readonly by: string;
  readonly value: unknown;
  /** The message of the error with which it fails; undefined if it completes. */
  readonly failure: string | undefined;
}

export interface ModelJob {
  readonly id: string;
  readonly keys: readonly string[];
  /** Jobs are numbered as they are added. */
  readonly number: number;
  priority: number;
  readonly attempts: number;
  readonly parent: string | undefined;
  phase: "ready" | "running" | "delayed" | "waiting for children";
  /** Of a delayed job. */
  dueMs: number;
  starts: number;
  /** The number of its slot of each key, while it has them. */
  slots: readonly number[];
  /** Its place in line for its locks, to be told when it comes back. */
  lockPlace: number | undefined;
  /** It gave its keys up for a while: these jobs, which stood in line then, come first. */
  behind: readonly ModelJob[];
  /** The jobs that had a slot of a closed key when this job gave up its own slot: they may begin before it. */
  readonly passedBy: Set<string>;
  /** Keys in whose line its place is not known: it was lost or chosen by hand, or is that of a delayed or LIFO job. */
  readonly displaced: Set<string>;
  /** A newer one of its keys waits: it is not to run, or not again. */
  isSuperseded: boolean;
  /** It has left its line for one that came later (`drop: "oldest"`), and waits to be told. */
  isLeaving: boolean;
  /** It has come into a line since it last began: the lane has put it into `delayed`, and puts it in front in its turn. */
  isParked: boolean;
  /** It counts as one that has come anew: by hand, from its children, or when its processor has chosen. */
  isAnew: boolean;
  /** Jobs with a higher number came after it: of one that has come anew, those that were added after it began. */
  newestBefore: number;
  /** What the call of another job has made of it: it does not run, and ends so. */
  outcome: MergedEnd | undefined;
}

export interface ModelKey {
  /** The jobs that were handed out and have not given the key up: they run, have stalled, or wait for their retry or lock. */
  readonly owners: Set<string>;
  /** Nothing starts. `failed`: the job that stopped it goes first, if it is retried by hand. `isVague`: the mark of it was lost by hand. */
  stop: { failed: string | undefined; isVague: boolean; untilMs: number } | undefined;
  /** Until then it may need the timers of its jobs to move on. */
  healsAtMs: number;
  /** Until then the first in a line that was lost may wait: the end of the pause or limit that there was then. */
  timedUntilMs: number;
  /** What operators have said of it. */
  policy: KeyPolicy | undefined;
  /** How many stood in its line after the step before. */
  standing: number;
  /** As many slots as it has had at a time. */
  mostSlots: number;
  /** It has had more slots before: a job that comes when more have it than may gives its slot up. */
  wasLowered: boolean;
  /** Which jobs began last, and when, the last one last. */
  readonly starts: { readonly id: string; readonly atMs: number }[];
  /** No job that stood in its line was lost: the first in line is due when a pause ends, or the rate allows it. */
  isExact: boolean;
  /** Whether its line was deleted by hand: those that stood there come back to it, however many. */
  wasLost: boolean;
  /** Its jobs have this key alone, and no place in its line was lost, paused or removed: the first in line comes within one interval. */
  isRegular: boolean;
}

export class LaneModel {
  /** Jobs that are neither completed, failed for good, nor removed. */
  readonly open = new Map<string, ModelJob>();
  readonly keys: ReadonlyMap<string, ModelKey>;
  /** Jobs that were put in front of the queue. */
  readonly front = new Set<string>();
  readonly #onFailure: LaneRules["onFailure"];
  readonly #rate: LaneRules["rate"];
  readonly #line: LaneRules["line"];
  readonly #isMerging: boolean;
  /** How many jobs of a key may run at a time, if operators say nothing. */
  readonly slots: number;
  /** Whether a line could be full until now, and a job leave it for one that came later. */
  limitsLines: boolean;
  dropsOldest: boolean;
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

  slotsOf(name: string): number {
    return this.key(name).policy?.concurrency ?? this.slots;
  }

  get mostSlots(): number {
    return Math.max(...[...this.keys.values()].map(({ mostSlots }) => mostSlots));
  }

  get hasRates(): boolean {
    return [...this.keys.keys()].some((name) => this.#rateOf(name) !== undefined);
  }

  /** Does a job that stood in a lost line wait for the end of a pause or limit? */
  isTimed(nowMs: number): boolean {
    return [...this.keys.values()].some(({ timedUntilMs }) => timedUntilMs > nowMs);
  }

  #rateOf(name: string): LaneRules["rate"] {
    return this.key(name).policy?.rate ?? this.#rate;
  }

  /** How many may stand in line for the key, and which one does not run otherwise. */
  lineOf(name: string): LaneRules["line"] {
    const said =
      this.#line === undefined || this.#line.as === "backlog" ? this.key(name).policy?.maxWaiting : undefined;
    if (said === undefined) return this.#line;
    const isOldest = said.drop === "oldest" && !this.#isMerging;
    return { max: said.max, drop: isOldest ? "oldest" : "newest", as: "backlog" };
  }

  setPolicy(name: string, policy: KeyPolicy | undefined): void {
    const key = this.key(name);
    const before = this.slotsOf(name);
    key.policy = policy;
    const slots = this.slotsOf(name);
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

  /** A job that takes the id of a removed one inherits nothing of it. */
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
      displaced: new Set<string>(),
      isSuperseded: false,
      isLeaving: false,
      isParked: false,
      isAnew: false,
      outcome: undefined,
    } as const;
    this.open.set(facts.id, { ...facts, ...state, number: this.#added, newestBefore: this.#added });
    for (const name of facts.keys) {
      const key = this.key(name);
      if (facts.keys.length > 1) key.isRegular = key.isExact = false;
    }
  }

  /** It was added with a delay: its place among the jobs of its keys is that of the moment when it is due. */
  delay(id: string, dueMs: number): void {
    const job = this.job(id);
    job.phase = "delayed";
    job.dueMs = dueMs;
    for (const name of job.keys) job.displaced.add(name);
  }

  /** Its place among the jobs of its keys is that of the moment when it is taken. */
  reprioritize(job: ModelJob, priority: number, toFront: boolean): void {
    job.priority = priority;
    for (const name of job.keys) job.displaced.add(name);
    if (toFront && priority === 0) this.front.add(job.id);
    else this.front.delete(job.id);
  }

  /** `atMs`: undefined for a job that ends without running. */
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

  /** Until when no job of the key may begin, because of its rate. */
  limitedUntilMs(name: string): number {
    const { max, duration } = this.#rateOf(name) ?? { max: 1, duration: Number.NEGATIVE_INFINITY };
    return (this.key(name).starts.at(-max)?.atMs ?? Number.NEGATIVE_INFINITY) + duration;
  }

  /** Until when it may stand still after that: it needs the timers of its jobs. */
  dueMs(name: string, untilMs: number = this.limitedUntilMs(name)): number {
    const key = this.key(name);
    return Math.max(key.healsAtMs, key.isExact ? untilMs : untilMs + this.#intervals(key) * NEAR_MS);
  }

  /** Completed. */
  complete(job: ModelJob): void {
    this.#giveUp(job);
    this.#end(job);
  }

  failForGood(job: ModelJob): void {
    for (const name of this.#onFailure === "halt" ? job.keys : []) {
      const key = this.key(name);
      if (key.owners.has(job.id)) key.stop = { failed: job.id, isVague: false, untilMs: Number.POSITIVE_INFINITY };
    }
    this.complete(job);
  }

  /** The job goes on later: after its backoff, or at a time that its processor has chosen. */
  postpone(job: ModelJob, why: "retry" | "delay", dueMs: number, { places }: Snapshot): void {
    if (why === "delay" || this.#onFailure === "skip") {
      this.#giveUp(job);
      job.behind = this.inPhase("ready").filter(({ id }) => places.get(id) === "delayed");
    }
    job.phase = "delayed";
    job.dueMs = dueMs;
    if (why === "delay") this.#comesAnew(job);
  }

  /** Back to `delayed` with its keys, until its lock is free: nothing is counted. */
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

  /** Back to the head of its lines: nothing of the keys that it has starts until then, and nothing is counted. */
  backOff(job: ModelJob, untilMs: number, holders: Holders): void {
    job.phase = "ready";
    job.starts -= 1;
    for (const name of job.keys) {
      const has = holders.get(name);
      if (has?.has(job.id) === true) this.stop(name, untilMs);
      // Its key was lost, and others were given it: it goes in front of those of them that have backed off, too.
      else for (const { id } of this.inPhase("ready")) if (has?.has(id) !== true) this.key(name).owners.delete(id);
    }
    // The next one may have a slot already.
    for (const name of job.keys) if (this.key(name).mostSlots > 1) job.displaced.add(name);
  }

  waitForChildren(job: ModelJob): void {
    this.#giveUp(job);
    this.#comesAnew(job);
    job.phase = "waiting for children";
  }

  /** Runs nowhere any more, and keeps its keys. */
  stalled(job: ModelJob): void {
    job.phase = "ready";
    this.front.add(job.id);
  }

  /** Brought back before its time; `toFront`: by the lane, which puts it in front. */
  hurry(job: ModelJob, nowMs: number, toFront: boolean): void {
    job.dueMs = Math.min(job.dueMs, nowMs);
    if (toFront) this.front.add(job.id);
  }

  /** BullMQ puts a LIFO job in front again when it is retried at once. */
  retryAtOnce(job: ModelJob, lifo: boolean | undefined): void {
    if (lifo === true && job.priority === 0) this.front.add(job.id);
  }

  /** An ended job is to run again. */
  reopen(job: ModelJob): void {
    job.phase = "ready";
    job.isSuperseded = false;
    this.#comesAnew(job);
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

  /** A newer one of its keys waits: it is not to run again. */
  supersede(job: ModelJob, nowMs: number): void {
    if (job.isSuperseded) return;
    job.isSuperseded = true;
    if (job.phase === "delayed" && job.dueMs > nowMs) this.hurry(job, nowMs, true);
    for (const name of job.keys) job.displaced.add(name);
  }

  /** Without a word to the lane: removed by hand, or finished by somebody who knows no keys. */
  vanish(job: ModelJob, nowMs: number, holders: Holders): void {
    for (const name of job.keys) {
      const key = this.key(name);
      key.isExact = false;
      if (job.keys.length > 1 || holders.get(name)?.has(job.id)) this.heal(name, nowMs);
      else if (job.phase !== "running") key.isRegular = false;
    }
    this.#giveUp(job);
    this.#end(job);
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

  /** Pauses that are over by now. */
  endPauses(nowMs: number): void {
    for (const [name, key] of this.keys) {
      // A lost mark is lost with its end, and the lane's timers are a millisecond later.
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

  /** Its line was deleted by hand, and with it the claim of a job that stood there because the key is stopped. */
  loseLine(name: string, nowMs: number, holders: Holders): void {
    const key = this.key(name);
    key.isRegular = key.isExact = false;
    key.wasLost = true;
    if (key.stop !== undefined) key.stop.isVague = true;
    for (const id of key.owners) if (!holders.get(name)?.has(id)) key.owners.delete(id);
    // The first in line has its timer at the end of these, also if they are lifted before: it stands in no line now.
    const ends = [this.limitedUntilMs(name), key.stop?.untilMs ?? 0].filter(Number.isFinite);
    key.timedUntilMs = Math.max(key.timedUntilMs, ...ends);
    this.heal(name, Math.max(nowMs, key.timedUntilMs));
    this.#displace(name);
  }

  /** Who has which key was deleted by hand: whoever runs has no claim any more. */
  loseHolders(nowMs: number): void {
    for (const [name, key] of this.keys) {
      this.loseLine(name, nowMs, new Map());
      key.owners.clear();
      this.setPolicy(name, undefined);
    }
  }

  /** Finds the jobs that were parked, or given their keys, just now: of these, those in `delayed` go to the front of the queue. */
  observe(before: Snapshot, after: Snapshot, nowMs: number): void {
    // Only the lane puts a job into `delayed` for longer than it was given.
    for (const [id, dueMs] of after.dues) {
      const job = this.open.get(id);
      if (job !== undefined && dueMs > job.dueMs) job.isParked = true;
    }
    for (const job of this.inPhase("ready")) {
      if ((before.dues.get(job.id) ?? nowMs) <= nowMs || after.places.get(job.id) !== "wait") continue;
      if (job.keys.every((key) => after.holders.get(key)?.has(job.id))) this.front.add(job.id);
    }
    for (const id of this.front) if (after.places.get(id) !== "wait") this.front.delete(id);
    if (this.mostSlots > 1) this.observeGivenUp(after, nowMs);
  }

  /** Of several that have stalled while a key of theirs is closed, any may come first when it opens. */
  observeGivenUp({ holders }: Snapshot, nowMs: number): void {
    const isClosed = (name: string): boolean => this.key(name).stop !== undefined || this.limitedUntilMs(name) > nowMs;
    const mayBeGivenUp = (name: string): boolean => isClosed(name) || this.key(name).wasLowered;
    const hasCome = ({ phase, dueMs }: ModelJob): boolean => phase === "ready" || dueMs <= nowMs;
    for (const job of this.inPhase("ready", "delayed").filter(({ keys }) => keys.some(mayBeGivenUp))) {
      if (!hasCome(job)) continue;
      for (const name of job.keys) {
        const { owners, wasLowered } = this.key(name);
        if (holders.get(name)?.has(job.id) === true) continue;
        // Of several that wait for their lock, any may go on when fewer may.
        if (wasLowered && owners.size > this.slotsOf(name)) job.displaced.add(name);
        const gaveUp = owners.delete(job.id);
        // Of more jobs than may have the key, the one that was chosen last gives way.
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
