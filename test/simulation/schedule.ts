/**
 * One schedule of locks: everything that happens in a world with this seed. First faults strike while clients acquire
 * and release locks. Then the world is quiet: every client must acquire a lock within a bound and release it, and no
 * key may remain.
 */
import {
  type ClientReply,
  INVARIANTS,
  type Interval,
  LockChecker,
  type RecordedEvent,
  Server,
  type Violation,
  World,
} from "../../packages/testing/src/world.ts";
import { Client } from "./client.ts";
import type { Engine } from "./engine.ts";
import { Faults } from "./faults.ts";
import { describeSetting, drawDrift, drawSetting, type Setting, type SettingOptions } from "./setting.ts";

export interface ScheduleOptions extends SettingOptions {
  readonly record?: boolean;
}

export interface ScheduleResult {
  readonly seed: string;
  /** The setting that was drawn from the seed, in words. */
  readonly about: readonly string[];
  readonly violation: Violation | undefined;
  readonly grants: number;
  readonly events: number;
  readonly endMs: number;
  /** Empty unless recorded. */
  readonly recordedEvents: readonly RecordedEvent[];
  readonly intervals: readonly Interval[];
}

export async function runSchedule(
  engine: Engine,
  seed: string,
  options: ScheduleOptions = {},
): Promise<ScheduleResult> {
  const world = new World(seed, { record: options.record === true });
  const setting = drawSetting(world.random, options);
  const schedule = new Schedule(engine, world, setting);
  await schedule.run();
  return {
    seed,
    about: describeSetting(setting),
    violation: world.violation,
    grants: schedule.checker.grantCount,
    events: world.eventCount,
    endMs: world.nowMs,
    recordedEvents: world.recordedEvents,
    intervals: schedule.checker.intervals,
  };
}

class Schedule {
  readonly checker: LockChecker;
  readonly #engine: Engine;
  readonly #world: World;
  readonly #setting: Setting;
  readonly #servers: readonly Server[];
  readonly #faults: Faults;
  /** The greatest fencing token of a single node. */
  #lastToken = 0;
  #clients: Client[] = [];
  #clientCount = 0;

  constructor(engine: Engine, world: World, setting: Setting) {
    this.#engine = engine;
    this.#world = world;
    this.#setting = setting;
    this.checker = new LockChecker(world);
    const { random } = world;
    this.#servers = Array.from({ length: setting.nodeCount }, (_, index) => {
      return new Server(world, {
        name: `node ${index + 1}`,
        drift: drawDrift(random, setting),
        clockOffsetMs: random.between(-20, 20),
      });
    });
    for (const server of this.#servers) server.onExecuted = (at, args, reply) => this.#executed(at, args, reply);
    this.#faults = new Faults(world, setting, this.#servers, () => this.#clients);
    // A single node has no quarantine by default, so other clients can acquire a lock that it has forgotten.
    if (setting.nodeCount === 1) this.#faults.onLoss = () => this.checker.forgot(this.#lastToken);
  }

  async run(): Promise<void> {
    const { setting } = this;
    for (const server of this.#servers) server.beSettled();
    for (let count = 0; count < setting.machineCount; count += 1) this.#addClient();
    this.#faults.start();
    await this.#pass(setting.faultyMs);
    await this.#recover();
    await this.#leaveNothing();
    await this.#close();
  }

  get setting(): Setting {
    return this.#setting;
  }

  get #quarantineMs(): number {
    return Math.ceil(this.#setting.maxTtl * (1 + this.#setting.driftFactor)) + 310;
  }

  async #pass(ms: number): Promise<void> {
    await this.#world.run(this.#world.nowMs + ms, () => this.checker.check());
  }

  #addClient(): void {
    const { random } = this.#world;
    this.#clientCount += 1;
    const client = new Client(
      {
        world: this.#world,
        setting: this.#setting,
        servers: this.#servers,
        checker: this.checker,
        engine: this.#engine,
        faults: () => this.#faults,
        onKilled: () => {
          this.#clients = this.#clients.filter((each) => each !== client);
          this.#world.at(this.#world.nowMs + random.between(5, 200), () => this.#addClient());
        },
      },
      `client ${this.#clientCount}`,
    );
    this.#clients.push(client);
    client.start();
  }

  /** Stops the faults. Everything broken is repaired a moment later. */
  async #recover(): Promise<void> {
    const { maxTtl, nodeTimeout } = this.#setting;
    this.#world.becomeQuiet();
    this.#world.record("world", "fault", () => "no faults from here on");
    for (const client of this.#clients) for (const link of client.links) link.heal();
    await this.#pass(1.4 * maxTtl + 250);
    const boundMs = Math.ceil(this.#quarantineMs + maxTtl + 20 * nodeTimeout + 6_000);
    for (const client of this.#clients) {
      for (const resource of this.#setting.resources) {
        client.machine.deliver("timer", () => void client.recover(resource, boundMs));
      }
    }
    await this.#pass(1.05 * boundMs + 1_000);
    this.#checkAnswers();
  }

  /** Checks that a node that answers late keeps no key of a lock that every client has released. */
  async #leaveNothing(): Promise<void> {
    const { nodeTimeout, resources, maxTtl } = this.#setting;
    const [resource = ""] = resources;
    await this.#pass(2 * maxTtl);
    for (const client of this.#clients) {
      this.#world.random.pick(client.links).stall("both", 1.5 * nodeTimeout);
      client.machine.deliver("timer", () => void client.passBy(resource));
      await this.#pass(3 * nodeTimeout + 60);
      const left = this.#servers.filter((server) => {
        const text = server.store.peek(resource)?.text;
        return text !== undefined && !text.startsWith("reserved:");
      });
      if (left.length === 0 || maxTtl < 4 * nodeTimeout + 100) continue;
      this.#world.violate(
        INVARIANTS.leftBehind,
        `${left.map(({ name }) => name).join(", ")} still has the key of ${resource}`,
      );
    }
  }

  async #close(): Promise<void> {
    const closing = this.#clients.map((client) => {
      const state = { isClosed: false, name: client.machine.name };
      client.machine.deliver("timer", () => {
        void client.redlock.close().then(() => {
          state.isClosed = true;
        });
      });
      return state;
    });
    await this.#pass(20 * this.#setting.nodeTimeout + 1_000);
    this.#checkAnswers();
    const open = closing.find(({ isClosed }) => !isClosed);
    if (open !== undefined) this.#world.violate(INVARIANTS.answers, `close() of ${open.name} does not end`);
  }

  #checkAnswers(): void {
    for (const client of this.#clients) {
      for (const what of client.overdue()) {
        this.#world.violate(INVARIANTS.answers, `${what} of ${client.machine.name} has not been answered`);
      }
    }
  }

  #executed(server: Server, args: readonly string[], reply: ClientReply): void {
    // The reply to several operations begins with the time and the quarantine, and refused operations have a list as
    // their reply.
    for (const told of Array.isArray(reply) ? reply.slice(2) : [reply]) {
      this.#lastToken = Math.max(this.#lastToken, Number(told) || 0);
    }
    if (this.#world.isRecording) this.#tellExecuted(server, args, reply);
    this.#checkExpiries(server);
    if (/^[AER]\d/.test(args[1] ?? "")) this.#faults.provoke({ server });
  }

  #tellExecuted(server: Server, args: readonly string[], reply: ClientReply): void {
    if (!Array.isArray(reply) || args[1] === undefined) return;
    this.#world.record(server.name, "node", () => `${describeOperations(args)} -> ${JSON.stringify(reply.slice(2))}`);
  }

  #checkExpiries(server: Server): void {
    for (const resource of this.#setting.resources) {
      const key = server.store.peek(resource);
      if (key === undefined) continue;
      const leftMs = (key.expiresMs ?? Number.POSITIVE_INFINITY) - server.nowUs() / 1_000;
      const mostMs = Math.max(this.#setting.maxTtl, 1_000) + 1;
      if (leftMs > mostMs) {
        this.#world.violate(
          INVARIANTS.expiry,
          `${resource} on ${server.name} lives for ${leftMs} ms, maxTtl is ${this.#setting.maxTtl}`,
        );
      }
    }
  }
}

/** Returns the operations of a batch as text, with shortened tokens. */
function describeOperations(args: readonly string[]): string {
  return args
    .slice(1)
    .map((operation) =>
      operation.replace(/\b([0-9a-f]{6})[0-9a-f]{34}(?= |$)/, "$1").replace(/x:redlock:(.{4})[0-9a-f]*#/, "$1#"),
    )
    .join("; ");
}
