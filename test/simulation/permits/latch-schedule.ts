/**
 * One schedule of latches. First faults strike while clients set latches, count down and wait. Count-downs are
 * repeated, often by another client, and a latch that has opened is set again. Then the world is quiet: each waiter of
 * an open latch is let through, and closed latches are counted down, and soon let all waiters through. Finally a
 * request of an earlier round arrives late.
 */
import { type Machine, Server, World } from "../../../packages/testing/src/world.ts";
import type { Engine } from "../engine.ts";
import { Faults } from "../faults.ts";
import type { ScheduleOptions, ScheduleResult } from "../schedule.ts";
import { describeSetting, drawDrift, drawSetting, losesData, type Setting } from "../setting.ts";
import { DAY_MS, LatchClient, LatchFacts, type Round } from "./latch-client.ts";

export const LATCH_INVARIANTS = {
  early: "nobody passes before the count is down",
  once: "what is sent again counts once",
  kept: "what was answered counts until it expires",
  wake: "whoever waits is let through",
  expiry: "every latch expires",
} as const;

/** Shorter than the 2 s for which a waiter may wait if it only polls. */
const WAKE_MS = 900;

/** Time for polling, including a connection that reconnects. */
const LOOK_MS = 6_000;

/** A client that repeats its request after this time has reconnected. */
const RETRY_MS = 200;

/** Delay of a request that was sent on a connection that broke. */
const LATE_MS = 1_000;

/** Greater than the difference between clocks. */
const DRIFT_SHARE = 0.1;

interface Waiter {
  readonly facts: LatchFacts;
  readonly machine: Machine;
  isThrough: boolean;
}

export async function runLatchSchedule(
  engine: Engine,
  seed: string,
  options: ScheduleOptions = {},
): Promise<ScheduleResult> {
  const world = new World(seed, { record: options.record === true });
  const setting = drawSetting(world.random, { ...options, nodeCount: 1 });
  const schedule = new LatchSchedule(engine, world, setting);
  await schedule.run();
  return {
    seed,
    about: [...describeSetting(setting), `latches of ${schedule.latches.map(({ count }) => count).join(", ")}`],
    violation: world.violation,
    grants: schedule.passed,
    events: world.eventCount,
    endMs: world.nowMs,
    recordedEvents: world.recordedEvents,
    intervals: [],
  };
}

class LatchSchedule {
  readonly latches: readonly LatchFacts[];
  /** Number of waits that were let through. */
  passed = 0;
  readonly #engine: Engine;
  readonly #world: World;
  readonly #setting: Setting;
  readonly #server: Server;
  readonly #faults: Faults;
  readonly #waiters: Waiter[] = [];
  #clients: LatchClient[] = [];
  #clientCount = 0;

  constructor(engine: Engine, world: World, setting: Setting) {
    this.#engine = engine;
    this.#world = world;
    this.#setting = setting;
    const { random } = world;
    this.latches = Array.from(
      { length: random.integer(2, 5) },
      (_, index) => new LatchFacts(random, `latch ${index + 1}`, !losesData(setting)),
    );
    const drift = drawDrift(random, setting);
    this.#server = new Server(world, { name: "node 1", drift, clockOffsetMs: random.between(-20, 20) });
    this.#server.onExecuted = (at, args, reply) => {
      world.record(at.name, "node", () => `${args.join(" ")} -> ${JSON.stringify(reply)}`);
      this.#faults.provoke({ server: at });
    };
    this.#faults = new Faults(world, setting, [this.#server], () => this.#clients);
  }

  async run(): Promise<void> {
    const { maxTtl, nodeTimeout, machineCount, faultyMs } = this.#setting;
    this.#server.beSettled();
    for (let count = 0; count < machineCount; count += 1) this.#addClient();
    for (const client of this.#clients) this.#start(client);
    this.#faults.start();
    await this.#pass(faultyMs);
    this.#world.becomeQuiet();
    this.#world.record("world", "fault", () => "no faults from here on");
    for (const client of this.#clients) client.link.heal();
    await this.#pass(1.4 * maxTtl + LOOK_MS);
    await this.#openAll();
    await this.#arriveLate();
    this.#checkExpiry();
    for (const client of this.#clients) client.do(() => client.redlock.close());
    await this.#pass(20 * nodeTimeout + 1_000);
  }

  /**
   * Checks that each waiter of an open latch has been let through, and counts the other latches down until their
   * waiters are let through.
   */
  async #openAll(): Promise<void> {
    const client = this.#addClient();
    await this.#pass(300);
    for (const facts of this.latches) {
      let left: number | undefined;
      client.do(async () => {
        left = await client.left(facts);
      });
      await this.#pass(300);
      if (left !== undefined) this.#checkLeft(facts, left, facts.round.answered.size);
      if (left === 0) {
        this.#checkWaiters(facts, "looking again");
        continue;
      }
      for (const each of this.#clients) this.#wait(each, facts);
      await this.#pass(300);
      client.do(async () => {
        if (left === undefined) {
          this.#checkGone(facts, facts.prolongedMs);
          await this.#set(client, facts);
        }
        for (let index = 0; index < facts.count; index += 1) await this.#countDown(client, facts, `${index}`);
      });
      await this.#pass(300 + WAKE_MS);
      this.#checkWaiters(facts, "the last count-down");
    }
  }

  /** A repeated request arrives once more after the latch has been set again, and must change nothing. */
  async #arriveLate(): Promise<void> {
    const latch = { name: "latch of two rounds", count: 1, keepFor: DAY_MS };
    const [late, other] = [this.#addClient(RETRY_MS), this.#addClient()];
    const isSet = this.#world.random.chance(0.5);
    let left: number | undefined;
    const asks = async (client: LatchClient, operation: "set" | "countDown"): Promise<void> => {
      client.do(() => client[operation](latch));
      await this.#pass(150);
    };
    const looks = async (client: LatchClient): Promise<void> => {
      client.do(async () => {
        left = await client.left(latch);
      });
      await this.#pass(150);
    };
    await this.#pass(300);
    await looks(late);
    if (!isSet) await asks(other, "set");
    late.network.delayMs += LATE_MS;
    late.do(() => late[isSet ? "set" : "countDown"](latch));
    await this.#pass(5);
    late.network.delayMs -= LATE_MS;
    late.link.reset(2 * LATE_MS);
    await this.#pass(2 * RETRY_MS);
    if (isSet) await asks(other, "countDown");
    await asks(other, "set");
    if (isSet) await asks(other, "countDown");
    await this.#pass(LATE_MS);
    await looks(other);
    if (left === (isSet ? 0 : 1)) return;
    const what = isSet ? "a set" : "a count-down";
    this.#world.violate(LATCH_INVARIANTS.once, `${what} of the round before has left ${left} of 1`);
  }

  #checkWaiters(facts: LatchFacts, after: string): void {
    const waiter = this.#waiters.find((each) => each.facts === facts && each.machine.isAlive && !each.isThrough);
    if (waiter === undefined) return;
    this.#world.violate(LATCH_INVARIANTS.wake, `${waiter.machine.name} waits at ${facts.name} after ${after}`);
  }

  #checkExpiry(): void {
    for (const { key, expiresMs } of this.#server.store.dump()) {
      if (key.endsWith(":latch") && expiresMs === undefined)
        this.#world.violate(LATCH_INVARIANTS.expiry, `${key} stays for ever`);
    }
  }

  async #pass(ms: number): Promise<void> {
    await this.#world.run(this.#world.nowMs + ms, () => undefined);
  }

  #addClient(retryDelay = this.#world.random.pick([20, RETRY_MS])): LatchClient {
    const { random } = this.#world;
    this.#clientCount += 1;
    const client = new LatchClient({
      engine: this.#engine,
      world: this.#world,
      setting: this.#setting,
      server: this.#server,
      name: `client ${this.#clientCount}`,
      retryDelay,
      onKilled: () => {
        this.#clients = this.#clients.filter((each) => each !== client);
        if (this.#world.isQuiet) return;
        this.#world.at(this.#world.nowMs + random.between(5, 200), () => this.#start(this.#addClient()));
      },
    });
    this.#clients.push(client);
    return client;
  }

  #start(client: LatchClient): void {
    for (const facts of this.latches) if (this.#world.random.chance(0.7)) this.#wait(client, facts);
    for (let task = 0; task < this.#setting.tasksPerMachine; task += 1) client.do(() => this.#task(client));
  }

  #wait(client: LatchClient, facts: LatchFacts): void {
    const waiter: Waiter = { facts, machine: client.machine, isThrough: false };
    const { name, count, round } = facts;
    this.#waiters.push(waiter);
    client.do(async () => {
      await client.latch(facts).wait({ timeout: Number.POSITIVE_INFINITY });
      waiter.isThrough = true;
      this.passed += 1;
      this.#world.record(client.machine.name, "grant", () => `passes ${name}`);
      // The latch may have been open until it was set again, and have let the waiter through.
      if (facts.round !== round || round.called.size >= count) return;
      this.#world.violate(
        LATCH_INVARIANTS.early,
        `${client.machine.name} passed ${name} of ${count} after ${round.called.size} count-downs`,
      );
    });
  }

  async #task(client: LatchClient): Promise<void> {
    const { random } = this.#world;
    while (!this.#world.isQuiet && client.machine.isAlive) {
      await client.sleep(random.between(0, 0.3) * this.#setting.maxTtl * random.fraction());
      if (this.#world.isQuiet) return;
      const facts = random.pick(this.latches);
      const { setting, isDone, isLasting } = facts;
      if (setting === "asked anew") continue;
      if (setting === "none" || (isDone && isLasting && random.chance(0.5))) await this.#set(client, facts);
      else await this.#countDown(client, facts, `${random.integer(0, facts.count - 1)}`);
    }
  }

  /**
   * Sets a latch for the first time, or again. Until the set is answered, its outcome is unknown. No client sets the
   * latch again while the node keeps it, because a set closes an open latch.
   */
  async #set(client: LatchClient, facts: LatchFacts): Promise<void> {
    const { name, isLasting, round, setting, unanswered } = facts;
    const isAnew = isLasting && setting !== "none";
    const next: Round = { called: new Set(unanswered.values()), answered: new Set() };
    if (isAnew) facts.round = { called: round.called, answered: new Set() };
    facts.setting = isAnew ? "asked anew" : "asked";
    const askedMs = this.#world.nowMs;
    const isMine = await client.set(facts);
    if (isMine === undefined) return;
    if (isAnew) facts.round = next;
    facts.setting = "set";
    facts.prolongedMs = Math.max(facts.prolongedMs, askedMs);
    if (isMine || !isLasting) return;
    const who = client.machine.name;
    this.#world.violate(LATCH_INVARIANTS.once, `${who} alone set ${name}, and was told that somebody else had`);
  }

  /** Counts `id` down. A latch without IDs counts every call, without an ID. */
  async #countDown(client: LatchClient, facts: LatchFacts, id: string): Promise<void> {
    const { count, round, hasIds, unanswered, prolongedMs } = facts;
    facts.calls += 1;
    const call = facts.calls;
    const own = hasIds ? id : `call ${call}`;
    round.called.add(own);
    unanswered.set(call, own);
    const before = new Set(round.answered).add(own).size;
    const askedMs = this.#world.nowMs;
    const answer = await client.countDown(facts, hasIds ? id : undefined);
    if (answer === undefined) return;
    if (answer === "not set") {
      this.#checkGone(facts, prolongedMs);
      if (!facts.isLasting) await this.#set(client, facts);
      return;
    }
    unanswered.delete(call);
    round.answered.add(own);
    facts.prolongedMs = Math.max(facts.prolongedMs, askedMs);
    if (facts.round !== round) return;
    this.#checkLeft(facts, answer, before);
    if (answer < count - round.called.size) {
      const { size } = round.called;
      this.#world.violate(LATCH_INVARIANTS.once, `${answer} are left of ${count} of ${facts.name} after ${size}`);
    }
  }

  /** Called if the node has no such latch. `prolongedMs`: when the latch was last prolonged, before the request. */
  #checkGone({ name, keepFor }: LatchFacts, prolongedMs: number): void {
    const keptMs = this.#world.nowMs - prolongedMs;
    if (losesData(this.#setting) || keptMs >= (1 - DRIFT_SHARE) * keepFor) return;
    this.#world.violate(LATCH_INVARIANTS.kept, `${name} is gone after ${keptMs.toFixed(0)} of ${keepFor} ms`);
  }

  /** `answered`: how many count-downs had been answered before the request. */
  #checkLeft({ name, count, isLasting }: LatchFacts, left: number, answered: number): void {
    if (!isLasting || left <= Math.max(0, count - answered)) return;
    this.#world.violate(LATCH_INVARIANTS.kept, `${left} are left of ${count} of ${name}, though ${answered} count`);
  }
}
