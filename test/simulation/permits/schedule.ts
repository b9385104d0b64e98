/**
 * One schedule of permits. First faults strike while clients acquire and release permits of one semaphore, or of one
 * read-write lock, which may have several nodes. Then the world is quiet: every client must get permits within a bound,
 * waiters are woken even if a waiter has died, readers that keep arriving do not starve a writer, and nothing is left
 * behind.
 */
import { type SeededRandom, Server, World } from "../../../packages/testing/src/world.ts";
import type { Engine } from "../engine.ts";
import { Faults } from "../faults.ts";
import type { ScheduleOptions, ScheduleResult } from "../schedule.ts";
import { describeSetting, drawDrift, drawSetting, losesData, type Setting } from "../setting.ts";
import { type Hold, PERMIT_INVARIANTS, PermitChecker } from "./checker.ts";
import { NAME, PermitClient, type PoolSetting } from "./client.ts";

/** All permits of a read-write lock, as in options.ts of the package. */
const ALL = 1_000_000;

/** Shorter than the 2 s for which a waiter may wait if it only polls. */
const WAKE_MS = 900;
/** Time between the calls of two waiters. */
const WAITER_GAP_MS = 150;

/** How long permits are kept for a called waiter, as in permits.lua.ts of the package. */
const TURN_MS = 1_000;

/** Longer than a waiter keeps its place in line without asking. */
const FROZEN_MS = 12_000;

/** Number of calls of one process that wait. */
const CALLS = 5;

export async function runPermitSchedule(
  engine: Engine,
  seed: string,
  options: ScheduleOptions = {},
): Promise<ScheduleResult> {
  const world = new World(seed, { record: options.record === true });
  const drawn = drawSetting(world.random, { ...options, nodeCount: 1 });
  const pool = drawPool(world.random, drawn, options.nodeCount);
  const setting = { ...drawn, nodeCount: pool.nodeCount };
  const schedule = new PermitSchedule(engine, world, setting, pool);
  await schedule.run();
  return {
    seed,
    about: [
      ...describeSetting(setting),
      pool.kind === "semaphore" ? `a semaphore of ${pool.capacity}` : `a read-write lock of ${pool.nodeCount} nodes`,
      pool.quarantine ? "with quarantine" : "without quarantine",
    ],
    violation: world.violation,
    grants: schedule.checker.grantCount,
    events: world.eventCount,
    endMs: world.nowMs,
    recordedEvents: world.recordedEvents,
    intervals: [],
  };
}

/** Draws the pool. Default: one node. With several nodes the pool is a read-write lock with a quarantine. */
function drawPool(random: SeededRandom, setting: Setting, nodeCount = 1): PoolSetting {
  const kind = nodeCount > 1 ? "readwrite" : random.pick(["semaphore", "semaphore", "readwrite"] as const);
  const capacity = kind === "semaphore" ? random.integer(1, 3) : ALL;
  return { kind, capacity, nodeCount, quarantine: losesData(setting) && (nodeCount > 1 || random.chance(0.7)) };
}

/** A server that counts how often it may have forgotten data. */
class ForgetfulServer extends Server {
  losses = 0;

  override crash(options: Parameters<Server["crash"]>[0]): void {
    if (options.amnesia !== "durable") this.losses += 1;
    super.crash(options);
  }

  override failOver(): void {
    this.losses += 1;
    super.failOver();
  }

  override flush(): void {
    this.losses += 1;
    super.flush();
  }
}

class PermitSchedule {
  readonly checker: PermitChecker;
  readonly #engine: Engine;
  readonly #world: World;
  readonly #setting: Setting;
  readonly #pool: PoolSetting;
  readonly #servers: readonly ForgetfulServer[];
  readonly #faults: Faults;
  #clients: PermitClient[] = [];
  #clientCount = 0;

  constructor(engine: Engine, world: World, setting: Setting, pool: PoolSetting) {
    this.#engine = engine;
    this.#world = world;
    this.#setting = setting;
    this.#pool = pool;
    const state = `{${NAME}}:${pool.kind}`;
    this.checker = new PermitChecker({
      world,
      capacity: pool.capacity,
      isAlone: pool.nodeCount === 1,
      maxTtl: setting.maxTtl,
      keys: { state, holders: `${state}:holders`, waiters: `${state}:waiters`, places: `${state}:places` },
      isCounted: this.#isCounted,
      nodeTimeUs: () => Math.max(...this.#servers.map((server) => server.nowUs())),
      losses: () => this.#servers.reduce((sum, { losses }) => sum + losses, 0),
    });
    const { random } = world;
    this.#servers = Array.from({ length: pool.nodeCount }, (_, index) => {
      const drift = drawDrift(random, setting);
      return new ForgetfulServer(world, { name: `node ${index + 1}`, drift, clockOffsetMs: random.between(-20, 20) });
    });
    for (const server of this.#servers) {
      server.onExecuted = (at, args, reply) => {
        world.record(at.name, "node", () => `${args.join(" ")} -> ${JSON.stringify(reply)}`);
        this.checker.executed(at, args, reply);
        this.#faults.provoke({ server: at });
      };
    }
    this.#faults = new Faults(world, setting, this.#servers, () => this.#clients);
  }

  /** False if the node may lose its data without a quarantine. */
  get #isCounted(): boolean {
    return this.#pool.quarantine || !losesData(this.#setting);
  }

  async run(): Promise<void> {
    for (const server of this.#servers) server.beSettled();
    for (let count = 0; count < this.#setting.machineCount; count += 1) this.#addClient();
    for (const client of this.#clients) client.start();
    this.#faults.start();
    await this.#pass(this.#setting.faultyMs);
    await this.#recover();
    await this.#wakeAll();
    if (this.#pool.kind === "readwrite") await this.#letWriterIn();
    await this.#leaveNothing();
    await this.#passFrozen();
    await this.#giveUp();
    if (!this.#isCounted && this.#pool.nodeCount === 1) await this.#forget();
    for (const client of this.#clients) client.machine.deliver("timer", () => void client.redlock.close());
    await this.#pass(20 * this.#setting.nodeTimeout + 1_000);
  }

  async #pass(ms: number): Promise<void> {
    await this.#world.run(this.#world.nowMs + ms, () => this.checker.check());
  }

  #addClient(): PermitClient {
    const { random } = this.#world;
    this.#clientCount += 1;
    const client = new PermitClient(
      {
        world: this.#world,
        setting: this.#setting,
        pool: this.#pool,
        servers: this.#servers,
        checker: this.checker,
        engine: this.#engine,
        faults: () => this.#faults,
        onKilled: () => {
          this.#clients = this.#clients.filter((each) => each !== client);
          if (this.#world.isQuiet) return;
          this.#world.at(this.#world.nowMs + random.between(5, 200), () => this.#addClient().start());
        },
      },
      `client ${this.#clientCount}`,
    );
    this.#clients.push(client);
    return client;
  }

  async #recover(): Promise<void> {
    const { maxTtl, nodeTimeout } = this.#setting;
    this.#world.becomeQuiet();
    this.#world.record("world", "fault", () => "no faults from here on");
    for (const client of this.#clients) for (const link of client.links) link.heal();
    await this.#pass(1.4 * maxTtl + 250);
    // A quarantine, a lease, and the turns of waiters that died.
    const boundMs = Math.ceil(2.1 * maxTtl + 20 * nodeTimeout + 12_000);
    for (const client of this.#clients) client.machine.deliver("timer", () => void client.recover(boundMs));
    await this.#pass(1.05 * boundMs + 1_000);
  }

  /**
   * One client holds all permits, the other clients wait in line, and the first waiter dies. All other waiters must
   * then be granted soon, and writers in their order. The order on one node is checked at each grant, because the
   * replies to waiters that are let in together may overtake each other.
   *
   * A waiter's place is a time of the nodes that answered its first request. Waiters may therefore overtake each other
   * by the difference between the nodes' clocks.
   */
  async #wakeAll(): Promise<void> {
    const [first = this.#addClient()] = this.#clients;
    const [dying, ...rest] = Array.from({ length: 4 }, () => this.#addClient());
    let letGo: () => void = () => undefined;
    const isFree = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const { capacity, kind } = this.#pool;
    first.machine.deliver("timer", () => {
      void first.take(capacity, 10_000, async (hold) => {
        await isFree;
        await first.release(hold);
      });
    });
    await this.#pass(300);
    const granted: number[] = [];
    // All readers hold the lock together until the last reader has it.
    const isWritten = kind === "readwrite" && this.#world.random.chance(0.5);
    const together = kind === "readwrite" && !isWritten;
    let letAllGo: () => void = () => undefined;
    const areAllIn = new Promise<void>((resolve) => {
      letAllGo = resolve;
    });
    for (const [index, client] of [dying, ...rest].entries()) {
      client?.machine.deliver("timer", () => {
        void client.take(isWritten ? capacity : 1, 60_000, async (hold) => {
          granted.push(index);
          if (granted.length === rest.length) letAllGo();
          if (together) await areAllIn;
          await client.release(hold);
        });
      });
      await this.#pass(WAITER_GAP_MS);
    }
    const nodeTimesMs = this.#servers.map((server) => server.nowUs() / 1_000);
    const isOrdered = isWritten && Math.max(...nodeTimesMs) - Math.min(...nodeTimesMs) < WAITER_GAP_MS;
    dying?.kill();
    await this.#pass(60);
    first.machine.deliver("timer", letGo);
    await this.#pass(WAKE_MS);
    if (isOrdered ? granted.join() === "1,2,3" : granted.length === rest.length) return;
    const told = granted.length === 0 ? "nobody" : granted.join(", ");
    this.#world.violate(PERMIT_INVARIANTS.wake, `of waiters 1, 2, 3 so far ${told} got a permit`);
  }

  /**
   * While a reader holds the lock and a writer waits, readers keep arriving, each before the previous reader has left.
   */
  async #letWriterIn(): Promise<void> {
    const clients = Array.from({ length: 4 }, () => this.#addClient());
    const [writer, ...readers] = clients;
    let isIn = false;
    const read = (turn: number): void => {
      const reader = readers[turn % readers.length];
      reader?.machine.deliver("timer", () => {
        void reader.take(1, 60_000, async (hold) => {
          await reader.sleep(300);
          await reader.release(hold);
        });
      });
    };
    read(0);
    await this.#pass(150);
    writer?.machine.deliver("timer", () => {
      void writer.take(ALL, 60_000, async (hold) => {
        isIn = true;
        await writer.release(hold);
      });
    });
    for (let turn = 1; turn * 100 <= WAKE_MS; turn += 1) {
      await this.#pass(100);
      read(turn);
    }
    if (!isIn) this.#world.violate(PERMIT_INVARIANTS.starvation, "readers that came later keep a writer out");
    await this.#pass(3_000);
  }

  /**
   * The first client in line is frozen with all its callers when the permits become free. The next client loses a turn.
   * The frozen client resumes later than it keeps its place in line, and its callers are granted one after the other.
   */
  async #passFrozen(): Promise<void> {
    const [holder, frozen, next] = [this.#addClient(), this.#addClient(), this.#addClient()];
    const { capacity } = this.#pool;
    const all = (client: PermitClient, then: (hold: Hold) => void): void =>
      client.machine.deliver("timer", () => {
        void client.take(capacity, 60_000, async (hold) => {
          then(hold);
          await client.release(hold);
        });
      });
    let letGo: () => void = () => undefined;
    holder.machine.deliver("timer", () => {
      void holder.take(capacity, 10_000, async (hold) => {
        letGo = () => void holder.release(hold);
      });
    });
    await this.#pass(300);
    const granted: number[] = [];
    for (let call = 1; call <= CALLS; call += 1) all(frozen, () => granted.push(call));
    await this.#pass(300);
    let isIn = false;
    all(next, () => {
      isIn = true;
    });
    await this.#pass(300);
    frozen.machine.freeze(FROZEN_MS);
    await this.#pass(60);
    holder.machine.deliver("timer", letGo);
    await this.#pass(TURN_MS + WAKE_MS);
    if (!isIn) this.#world.violate(PERMIT_INVARIANTS.wake, "whoever is behind a frozen waiter got no permit");
    await this.#pass(FROZEN_MS - TURN_MS);
    const inOrder = Array.from({ length: CALLS }, (_, index) => index + 1).join();
    if (granted.join() === inOrder) return;
    this.#world.violate(PERMIT_INVARIANTS.wake, `of ${CALLS} calls of a frozen process got permits: ${granted.join()}`);
  }

  /** A call that gives up must leave the line immediately, not when its place expires. */
  async #giveUp(): Promise<void> {
    const [holder, waiter] = [this.#addClient(), this.#addClient()];
    const { capacity } = this.#pool;
    holder.machine.deliver("timer", () => {
      void holder.take(capacity, 10_000, async (hold) => {
        await holder.sleep(1_500);
        await holder.release(hold);
      });
    });
    await this.#pass(300);
    waiter.machine.deliver("timer", () => void waiter.take(1, 300, (hold) => waiter.release(hold)));
    await this.#pass(WAKE_MS);
    this.#expectNothing(/:waiters$/);
    await this.#pass(WAKE_MS);
  }

  /** The node forgets the holders. Another client acquires and releases permits before the holder extends. */
  async #forget(): Promise<void> {
    const [holder, other] = [this.#addClient(), this.#addClient()];
    const { capacity } = this.#pool;
    let extend: () => void = () => undefined;
    holder.machine.deliver("timer", () => {
      void holder.take(capacity, 10_000, async (hold) => {
        extend = () => void hold.lock.extend().catch(() => undefined);
        await holder.sleep(800);
        await holder.release(hold);
      });
    });
    await this.#pass(300);
    this.#servers[0]?.flush();
    other.machine.deliver("timer", () => void other.take(capacity, 0, (hold) => other.release(hold)));
    await this.#pass(60);
    holder.machine.deliver("timer", () => extend());
    await this.#pass(WAKE_MS);
  }

  #expectNothing(keys: RegExp): void {
    for (const server of this.#servers) {
      const left = server.store.dump().filter(({ key }) => keys.test(key));
      if (left.length === 0) continue;
      this.#world.violate(PERMIT_INVARIANTS.leftBehind, `${server.name} still has ${JSON.stringify(left)}`);
    }
  }

  /** Checks that a node that answers late keeps no permit of a call that has given up. */
  async #leaveNothing(): Promise<void> {
    const { nodeTimeout, maxTtl } = this.#setting;
    const [client] = this.#clients;
    if (client === undefined || maxTtl < 4 * nodeTimeout + 200) return;
    const { random } = this.#world;
    const stalled = random.chance(0.5) ? client.links : [random.pick(client.links)];
    for (const link of stalled) link.stall("both", 1.5 * nodeTimeout);
    client.machine.deliver("timer", () => void client.take(1, 0, (hold) => client.release(hold)));
    await this.#pass(3 * nodeTimeout + 60);
    this.#expectNothing(/:(holders|waiters)$/);
  }
}
