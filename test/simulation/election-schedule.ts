/**
 * One schedule with leader elections: the real LeaderElection, usually with a LeaderScheduler, on the real Redlock, in
 * the same world and under the same faults as schedule.ts.
 *
 * At most one candidate may report `isCurrent()` at a time, terms increase, and a task never overlaps itself. A tick
 * runs at most once or at least once, as its option says. No attempt begins twice, and orders take effect. After the
 * faults stop, a candidate leads within a bound. From the election on, the nodes that elected a leader know the leader,
 * and a bystander that observes is notified of no other leader.
 */
import type { LeaderElection, LeaderInfo, LeaderTerm } from "@x/leader";
import type { LeaderScheduler, ScheduleDefinition, Tick, TickHandler } from "@x/leader/scheduler";
import type { Redlock } from "@x/redlock-core";
import { EPOCH_MS, type Interval, Link, Machine, Server, World } from "../../packages/testing/src/world.ts";
import type { Engine } from "./engine.ts";
import { Faults, type Victim } from "./faults.ts";
import type { ScheduleOptions, ScheduleResult } from "./schedule.ts";
import { describeSetting, drawDrift, drawSetting, type Setting } from "./setting.ts";

export const ELECTION_INVARIANTS = {
  oneLeader: "one leader",
  termOrder: "term order",
  noOverlap: "no overlapping task",
  atMostOnce: "tick at most once",
  atLeastOnce: "tick at least once",
  attempts: "an attempt begins once",
  pause: "paused schedule",
  removed: "removed schedule",
  trigger: "triggered once",
  ticking: "ticks go on",
  recovery: "bounded election",
  stop: "bounded stop",
  known: "leader known to its quorum",
  observed: "only leaders are observed",
  observedLast: "the leader is observed",
} as const;

const NAME = "simulated";
const NOTE = `{leader:${NAME}}:note`;

const TICK_MS = 150;
const COOLDOWN_MS = 50;
/**
 * The faults last this many times as long as in a schedule of locks, because a change of leaders takes about a lease
 * and several changes should fit.
 */
const FAULTY_FACTOR = 3;
const LOSES_DATA = ["crash", "failover", "flush"] as const;

/** Longest run of a handler, so that a leader often dies while its handler runs. */
const LONGEST_RUN_MS = 100;
/** Longer than the difference between clocks and the duration of a claim. */
const PAUSE_TAKES_MS = 1_000;
/** Time without faults after the last trigger, in which the world is observed in any case. */
const LAST_MS = 3_000;
/**
 * Longest time without faults until the last trigger and a new tick have run. A leader that catches up first runs up to
 * 100 ticks one after another, which take up to `LONGEST_RUN_MS` each, while new ticks fall due.
 */
const LONGEST_CATCHUP_MS = 60_000;

/** Schedules of seeds with this prefix have ticks of a schedule as data, which candidates write again and again. */
export const DATA_SEED = "data";

type Mode = "task" | "at-most-once" | "at-least-once";

export async function runElectionSchedule(
  engine: Engine,
  seed: string,
  options: ScheduleOptions = {},
): Promise<ScheduleResult> {
  const world = new World(seed, { record: options.record === true });
  const setting = drawSetting(world.random, options);
  const isData = seed.startsWith(DATA_SEED);
  const mode = world.random.pick<Mode>([isData ? "at-least-once" : "task", "at-most-once", "at-least-once"]);
  const schedule = new ElectionSchedule(engine, world, setting, mode, isData);
  await schedule.run();
  return {
    seed,
    about: [
      ...describeSetting(setting),
      `leaders with ${mode === "task" ? "a task" : `${mode} ticks`}${isData ? " of data" : ""}`,
    ],
    violation: world.violation,
    grants: schedule.termCount,
    events: world.eventCount,
    endMs: world.nowMs,
    recordedEvents: world.recordedEvents,
    intervals: schedule.intervals,
  };
}

interface Office {
  readonly machine: Machine;
  readonly term: LeaderTerm;
  readonly fromMs: number;
  toMs: number | undefined;
}

class ElectionSchedule {
  readonly #engine: Engine;
  readonly #world: World;
  readonly #setting: Setting;
  readonly #mode: Mode;
  readonly #isData: boolean;
  readonly #servers: readonly Server[];
  readonly #faults: Faults;
  readonly #offices: Office[] = [];
  readonly #ticks = new Map<number, number>();
  /** Ticks with their attempts, and triggered runs, that have begun. */
  readonly #begun = new Set<string>();
  /** Whether only the same minority of the nodes loses data, so that a majority knows everything. */
  readonly #isMinor: boolean;
  /** Whether a leader continued from nodes that may have forgotten, and reported this. */
  #isDoubtful = false;
  #isPaused = false;
  /** When a pause was confirmed. Undefined if there is none, or if a later order was sent. */
  #pausedMs: number | undefined;
  /** Whether an order of unknown outcome may still arrive. */
  #isAmbiguous = false;
  #live: Office[] = [];
  #candidates: Candidate[] = [];
  #candidateCount = 0;
  #lastTerm = 0;
  /** The nodes that have granted the lock for each term, according to the note next to the lock. */
  readonly #grantedBy = new Map<number, Set<Server>>();
  readonly #observer: Bystander;

  constructor(engine: Engine, world: World, setting: Setting, mode: Mode, isData: boolean) {
    this.#isData = isData;
    this.#engine = engine;
    this.#world = world;
    this.#setting = setting;
    this.#mode = mode;
    const { random } = world;
    this.#servers = Array.from({ length: setting.nodeCount }, (_, index) => {
      const drift = drawDrift(random, setting);
      return new Server(world, { name: `node ${index + 1}`, drift, clockOffsetMs: random.between(-20, 20) });
    });
    for (const server of this.#servers) {
      server.beSettled();
      server.onExecuted = (at, args, reply) => {
        world.record(at.name, "node", () => `${args.join(" ").slice(0, 120)} -> ${JSON.stringify(reply)}`);
        this.#noteGrant(at);
        this.#faults.provoke({ server: at });
      };
    }
    this.#isMinor = setting.nodeCount > 2 && random.chance(0.7);
    const forgetful = this.#isMinor ? this.#servers.slice(0, Math.floor((setting.nodeCount - 1) / 2)) : this.#servers;
    this.#faults = new Faults(world, setting, this.#servers, () => this.#candidates, forgetful);
    this.#observer = new Bystander(world, setting, this.#servers, engine, (info) => this.#observed(info));
  }

  get termCount(): number {
    return this.#offices.length;
  }

  get intervals(): readonly Interval[] {
    return this.#offices.map(({ machine, term, fromMs, toMs }) => ({
      machine: machine.name,
      resource: "leader",
      fromMs,
      toMs: toMs ?? this.#world.nowMs,
      fencingToken: term.term,
    }));
  }

  async run(): Promise<void> {
    const { maxTtl, driftFactor } = this.#setting;
    for (let count = 0; count < this.#setting.machineCount; count += 1) this.#addCandidate();
    this.#observer.start();
    this.#faults.start();
    if (this.#mode !== "task") this.#operate();
    await this.#pass(FAULTY_FACTOR * this.#setting.faultyMs);
    this.#world.becomeQuiet();
    this.#world.record("world", "fault", () => "no faults from here on");
    for (const candidate of this.#candidates) for (const link of candidate.links) link.heal();
    await this.#pass(1.4 * maxTtl + 250 + maxTtl * (2 + driftFactor) + 20 * this.#setting.nodeTimeout + 6_000);
    const leader = this.#live.find((office) => this.#isCurrent(office));
    if (leader === undefined) {
      this.#world.violate(ELECTION_INVARIANTS.recovery, "nobody leads, long after the faults");
    } else if (this.#observer.last?.term !== leader.term.term) {
      const seen = this.#observer.last?.term ?? "nobody";
      this.#world.violate(ELECTION_INVARIANTS.observedLast, `${leader.term.term} leads, and ${seen} is observed`);
    }
    if (this.#mode !== "task") await this.#checkLast();
    this.#checkTicks();
    await this.#stop();
  }

  elected(machine: Machine, term: LeaderTerm): void {
    const office: Office = { machine, term, fromMs: this.#world.nowMs, toMs: undefined };
    this.#offices.push(office);
    this.#live.push(office);
    this.#world.record(machine.name, "grant", () => `leads (${term.term})`);
    if (term.term <= this.#lastTerm) {
      this.#world.violate(
        ELECTION_INVARIANTS.termOrder,
        `${machine.name} was elected for term ${term.term} after ${this.#lastTerm}`,
      );
    }
    this.#lastTerm = Math.max(this.#lastTerm, term.term);
    if (!this.#hasQuorum(term.term)) {
      this.#world.violate(ELECTION_INVARIANTS.known, `fewer nodes than a quorum know that ${machine.name} leads`);
    }
    this.#faults.provoke({ machine });
  }

  ended(machine: Machine): void {
    this.#live = this.#live.filter((office) => {
      if (office.machine !== machine) return true;
      office.toMs ??= this.#world.nowMs;
      return false;
    });
  }

  ticked(machine: Machine, { schedule, scheduledAt, attempt, id }: Tick): void {
    const atMs = scheduledAt.getTime();
    this.#world.record(machine.name, "call", () => `tick ${id} (${atMs - EPOCH_MS}), attempt ${attempt}`);
    const key = `${id} ${attempt}`;
    if (this.#begun.has(key) && this.#remembers) {
      const invariant = schedule === "asked" ? ELECTION_INVARIANTS.trigger : ELECTION_INVARIANTS.attempts;
      this.#world.violate(invariant, `attempt ${attempt} of ${id} began again, on ${machine.name}`);
    }
    this.#begun.add(key);
    const pausedMs = this.#pausedMs ?? Number.POSITIVE_INFINITY;
    if (schedule === "gated" && atMs - EPOCH_MS > pausedMs + PAUSE_TAKES_MS && this.#remembers && !this.#isAmbiguous)
      this.#world.violate(ELECTION_INVARIANTS.pause, `${id} ran on ${machine.name}, paused at ${pausedMs} ms`);
    if (schedule !== "tick") return;
    const runs = (this.#ticks.get(atMs) ?? 0) + 1;
    this.#ticks.set(atMs, runs);
    if (this.#mode !== "at-most-once" || runs === 1 || !this.#remembers) return;
    this.#world.violate(
      ELECTION_INVARIANTS.atMostOnce,
      `the tick at ${atMs - EPOCH_MS} ms ran ${runs} times, last on ${machine.name}`,
    );
  }

  #noteGrant(at: Server): void {
    const note = at.store.call("GET", [NOTE]);
    const [, term] = typeof note === "string" ? note.split(" ") : [];
    if (term === undefined) return;
    const granted = this.#grantedBy.get(Number(term)) ?? new Set();
    this.#grantedBy.set(Number(term), granted.add(at));
  }

  #hasQuorum(term: number): boolean {
    return 2 * (this.#grantedBy.get(term)?.size ?? 0) > this.#servers.length;
  }

  /**
   * Called when the bystander is notified. A candidate that dies before it reads its grants was elected nevertheless.
   */
  #observed(info: LeaderInfo | null): void {
    this.#world.record("bystander", "call", () => `sees ${info === null ? "nobody" : info.term}`);
    if (info === null || this.#hasQuorum(info.term)) return;
    this.#world.violate(ELECTION_INVARIANTS.observed, `${info.id} is observed in term ${info.term}, without a quorum`);
  }

  doubted(): void {
    this.#isDoubtful = true;
  }

  /** Whether the nodes remember the claims of ticks. After a majority has lost its data, claims promise nothing. */
  get #remembers(): boolean {
    const losesData = LOSES_DATA.some((fault) => this.#setting.faults.has(fault));
    return !this.#isDoubtful && (this.#isMinor || !losesData);
  }

  /** Sends pauses, resumes and triggers from random candidates. */
  #operate(): void {
    const { random } = this.#world;
    this.#world.at(this.#world.nowMs + random.between(50, 1_500), () => {
      if (this.#world.isQuiet) return;
      if (this.#candidates.length === 0) return this.#operate();
      const candidate = random.pick(this.#candidates);
      if (this.#isData) this.#order(candidate, (scheduler) => this.#define(scheduler)).catch(() => undefined);
      if (random.chance(0.5)) this.#order(candidate, (scheduler) => scheduler.trigger("asked")).catch(() => undefined);
      if (this.#isAmbiguous) return this.#operate();
      this.#isPaused = !this.#isPaused;
      this.#pausedMs = undefined;
      // The outcome is unknown until the order is answered.
      this.#isAmbiguous = true;
      const isPaused = this.#isPaused;
      this.#order(candidate, (scheduler) => (isPaused ? scheduler.pause("gated") : scheduler.resume("gated"))).then(
        () => {
          this.#isAmbiguous = false;
          if (isPaused) this.#pausedMs = this.#world.nowMs;
        },
        () => undefined,
      );
      this.#operate();
    });
  }

  /**
   * Writes the set again, with or without another schedule, or changes the other schedule. The ticks of "tick"
   * continue.
   */
  async #define(scheduler: LeaderScheduler): Promise<void> {
    const { random } = this.#world;
    const tick = tickDefinition(this.#mode);
    const extra = { kind: "tick", every: TICK_MS, data: random.hex(4), options: { offset: random.pick([0, 50]) } };
    const isUpsert = random.chance(0.3);
    const isRemoval = !isUpsert && random.chance(0.3);
    if (isUpsert) await scheduler.upsert("extra", extra);
    else if (isRemoval) await scheduler.remove("extra");
    else await scheduler.reconcile(random.chance(0.5) ? [tick] : [{ name: "extra", ...extra }, tick]);
  }

  #order(candidate: Candidate, give: (scheduler: LeaderScheduler) => Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      candidate.machine.deliver("timer", () => {
        if (candidate.scheduler !== undefined) give(candidate.scheduler).then(resolve, reject);
      });
    });
  }

  /** Checks that ticks continue without faults, and that a triggered schedule runs. */
  async #checkLast(): Promise<void> {
    const asked = (): number => [...this.#begun].filter((key) => key.startsWith("asked")).length;
    const [before, fromMs] = [asked(), this.#world.nowMs];
    const [candidate] = this.#candidates;
    if (candidate === undefined) return;
    this.#order(candidate, (scheduler) => scheduler.trigger("asked")).catch(() => undefined);
    const hasTriggered = (): boolean => asked() > before;
    // Nodes that lose their data also lose schedules as data.
    const isLost = this.#isData && !this.#remembers;
    const hasTicked = (): boolean => isLost || Math.max(0, ...this.#ticks.keys()) - EPOCH_MS >= fromMs;
    await this.#pass(LAST_MS);
    const endMs = fromMs + LONGEST_CATCHUP_MS;
    // A violation stops the time of the world.
    const isOver = (): boolean => this.#world.violation !== undefined || this.#world.nowMs >= endMs;
    while (!(hasTriggered() && hasTicked()) && !isOver()) await this.#pass(TICK_MS);
    if (!hasTriggered()) this.#world.violate(ELECTION_INVARIANTS.trigger, "what was triggered does not run");
    if (!hasTicked()) this.#world.violate(ELECTION_INVARIANTS.ticking, "no tick runs any more, long after the faults");
  }

  async #pass(ms: number): Promise<void> {
    await this.#world.run(this.#world.nowMs + ms, () => this.#check());
  }

  /** Asks the terms only while two terms could be current, because a question ends a term that is over. */
  #check(): void {
    if (this.#live.length < 2) return;
    const current = this.#live.filter((office) => this.#isCurrent(office));
    for (const office of this.#live) if (!current.includes(office)) office.toMs ??= this.#world.nowMs;
    this.#live = current;
    const [first, second] = current;
    if (first === undefined || second === undefined) return;
    this.#world.violate(
      ELECTION_INVARIANTS.oneLeader,
      `${first.machine.name} (${first.term.term}) and ${second.machine.name} (${second.term.term}) both lead`,
    );
  }

  #isCurrent({ machine, term }: Office): boolean {
    if (!machine.isAlive) return false;
    const now = {
      monotonicMs: machine.monotonicMs(),
      wallMs: Math.floor(machine.wallMs()),
      suspendedMs: machine.suspendedMs(),
    };
    return machine.withClock(now, () => term.isCurrent());
  }

  #checkTicks(): void {
    if (this.#mode !== "at-least-once" || !this.#remembers) return;
    const times = [...this.#ticks.keys()].toSorted((a, b) => a - b);
    for (const [index, atMs] of times.entries()) {
      const before = times[index - 1];
      if (before === undefined || atMs - before === TICK_MS) continue;
      this.#world.violate(
        ELECTION_INVARIANTS.atLeastOnce,
        `no tick ran between ${before - EPOCH_MS} and ${atMs - EPOCH_MS} ms`,
      );
    }
  }

  async #stop(): Promise<void> {
    const stopping = this.#candidates.map((candidate) => {
      const state = { isStopped: false, name: candidate.machine.name };
      candidate.machine.deliver("timer", () => {
        void candidate.stop().then(() => {
          state.isStopped = true;
        });
      });
      return state;
    });
    this.#observer.machine.deliver("timer", () => void this.#observer.stop());
    await this.#pass(20 * this.#setting.nodeTimeout + 5_000);
    const open = stopping.find(({ isStopped }) => !isStopped);
    if (open !== undefined) this.#world.violate(ELECTION_INVARIANTS.stop, `stop() of ${open.name} does not end`);
  }

  #addCandidate(): void {
    this.#candidateCount += 1;
    const candidate = new Candidate({
      world: this.#world,
      setting: this.#setting,
      servers: this.#servers,
      engine: this.#engine,
      mode: this.#mode,
      isData: this.#isData,
      name: `candidate ${this.#candidateCount}`,
      schedule: this,
      onKilled: (killed) => {
        this.ended(killed.machine);
        this.#candidates = this.#candidates.filter((each) => each !== killed);
        this.#world.at(this.#world.nowMs + this.#world.random.between(5, 200), () => this.#addCandidate());
      },
    });
    this.#candidates.push(candidate);
    candidate.start();
  }
}

/** A process that observes the election and is never a candidate. */
class Bystander {
  readonly machine: Machine;
  last: LeaderInfo | null = null;
  readonly #redlock: Redlock;
  readonly #election: LeaderElection;
  readonly #see: (info: LeaderInfo | null) => void;

  constructor(
    world: World,
    setting: Setting,
    servers: readonly Server[],
    engine: Engine,
    see: (info: LeaderInfo | null) => void,
  ) {
    const { random } = world;
    this.#see = see;
    const still = { wallOffsetMs: 0, stallChance: 0, longestStallMs: 0 };
    this.machine = new Machine(world, { name: "bystander", drift: drawDrift(random, setting), ...still });
    const links = servers.map((server) => new Link(this.machine, server, setting.network));
    this.#redlock = new engine.core.Redlock(links, {
      ttl: setting.maxTtl,
      maxTtl: setting.maxTtl,
      nodeTimeout: Math.min(setting.nodeTimeout, Math.floor(setting.maxTtl / 6)),
      clock: this.machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
    this.#election = new engine.leader.LeaderElection(this.#redlock, {
      name: NAME,
      id: "bystander",
      leaseDuration: setting.maxTtl,
    });
    for (const name of ["error", "nodeFailed", "taskFailed"] as const) this.#election.on(name, () => undefined);
  }

  start(): void {
    this.machine.deliver("timer", () => {
      this.#election.on("leaderChanged", (info) => {
        this.last = info;
        this.#see(info);
      });
    });
  }

  async stop(): Promise<void> {
    await this.#election.stop();
    await this.#redlock.close();
  }
}

interface CandidateParts {
  readonly world: World;
  readonly setting: Setting;
  readonly servers: readonly Server[];
  readonly engine: Engine;
  readonly mode: Mode;
  readonly isData: boolean;
  readonly name: string;
  readonly schedule: ElectionSchedule;
  readonly onKilled: (candidate: Candidate) => void;
}

/** Returns the schedule whose ticks are counted, in code or as data. */
function tickDefinition(mode: Mode): ScheduleDefinition & { readonly every: number } {
  const delivery = mode === "task" ? undefined : mode;
  const catchup = { catchup: "all", catchupWindow: 3_600_000, maxCatchup: 1_000 } as const;
  return {
    name: "tick",
    kind: "tick",
    every: TICK_MS,
    options: { ...catchup, delivery, overlap: "allowAll", maxAttempts: 1_000 },
  };
}

class Candidate implements Victim {
  readonly machine: Machine;
  readonly links: readonly Link[];
  readonly #parts: CandidateParts;
  readonly #redlock: Redlock;
  readonly #election: LeaderElection;
  readonly scheduler: LeaderScheduler | undefined;
  #runningTasks = 0;

  constructor(parts: CandidateParts) {
    const { world, setting, servers, engine, mode } = parts;
    const { random } = world;
    this.#parts = parts;
    this.machine = new Machine(world, {
      name: parts.name,
      drift: drawDrift(random, setting),
      wallOffsetMs: random.between(-1, 1) * Math.min(setting.skewMs, 50),
      stallChance: setting.faults.has("client stall") ? 0.0005 : 0,
      longestStallMs: 0.7 * setting.maxTtl,
    });
    this.links = servers.map((server) => new Link(this.machine, server, setting.network));
    this.#redlock = new engine.core.Redlock(this.links, {
      ttl: setting.maxTtl,
      maxTtl: setting.maxTtl,
      driftFactor: setting.driftFactor,
      nodeTimeout: Math.min(setting.nodeTimeout, Math.floor(setting.maxTtl / 6)),
      retryDelay: 20,
      clock: this.machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
    this.#election = new engine.leader.LeaderElection(this.#redlock, {
      name: NAME,
      id: parts.name,
      leaseDuration: setting.maxTtl,
      cooldown: { initial: COOLDOWN_MS, max: COOLDOWN_MS },
    });
    this.#election.on("elected", (term) => parts.schedule.elected(this.machine, term));
    this.#election.on("ended", () => parts.schedule.ended(this.machine));
    for (const name of ["error", "nodeFailed", "taskFailed"] as const) this.#election.on(name, () => undefined);
    if (mode === "task") return;
    this.scheduler = new engine.scheduler.LeaderScheduler({ election: this.#election });
    this.scheduler.on("error", (error) => {
      if (error instanceof Error && error.message.includes("may have forgotten")) parts.schedule.doubted();
    });
    const ticked: TickHandler = async (tick) => {
      parts.schedule.ticked(this.machine, tick);
      await this.#sleep(random.between(0, LONGEST_RUN_MS));
    };
    this.scheduler.every("gated", TICK_MS, ticked);
    this.scheduler.every("asked", 365 * 86_400_000, ticked);
    const { every, options } = tickDefinition(mode);
    if (parts.isData) this.scheduler.handle("tick", ticked);
    else this.scheduler.every("tick", every, ticked, options);
  }

  start(): void {
    this.machine.deliver("timer", () => {
      if (this.scheduler === undefined) void this.#election.run((term) => this.#lead(term));
      else this.scheduler.start();
      if (this.scheduler !== undefined && this.#parts.isData) void this.#define(this.scheduler);
    });
  }

  /** Repeats the write of the set until it succeeds, as a deployment does. */
  async #define(scheduler: LeaderScheduler): Promise<void> {
    const isWritten = await scheduler.reconcile([tickDefinition(this.#parts.mode)]).then(
      () => true,
      () => false,
    );
    if (isWritten) return;
    await this.#sleep(100);
    await this.#define(scheduler);
  }

  kill(): void {
    this.machine.kill();
    this.#parts.onKilled(this);
  }

  async stop(): Promise<void> {
    await this.scheduler?.[Symbol.asyncDispose]();
    await this.#election.stop({ drainTimeout: 100 });
    await this.#redlock.close();
  }

  /** The task: ends by itself after a while, fails, or continues until its term is over. */
  async #lead(term: LeaderTerm): Promise<void> {
    const { world, setting } = this.#parts;
    this.#runningTasks += 1;
    if (this.#runningTasks > 1) world.violate(ELECTION_INVARIANTS.noOverlap, `two tasks run on ${this.machine.name}`);
    try {
      const endMs = this.machine.monotonicMs() + world.random.between(0, 2) * setting.maxTtl;
      while (!term.signal.aborted && (world.isQuiet || this.machine.monotonicMs() < endMs)) await this.#sleep(40);
      if (world.random.chance(0.3)) throw new Error("the task fails");
    } finally {
      this.#runningTasks -= 1;
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.machine.clock.schedule(ms, resolve);
    });
  }
}
