/**
 * Directed schedules, like directed.ts, for the scheduler's register. Each story says who leads in which term, even at
 * the same time, and which messages and data are lost. No attempt of a tick may begin twice, no at-least-once tick may
 * be skipped, and a paused schedule may not run.
 */
import type { LeaderElection, LeaderTerm } from "@x/leader";
import type { LeaderScheduler, ScheduleOptions, Tick } from "@x/leader/scheduler";
import { Drift, EPOCH_MS, Link, Machine, Server, World } from "../../packages/testing/src/world.ts";
import { ELECTION_INVARIANTS } from "./election-schedule.ts";
import type { Engine } from "./engine.ts";
import type { ScheduleResult } from "./schedule.ts";

const ELECTION = "directed";
const PERIOD_MS = 1_000;
const EXACT = new Drift(0, 1_000, 0);

interface Replica {
  readonly links: readonly Link[];
  readonly scheduler: LeaderScheduler;
  /** Ends the replica's term, and the replica notices. */
  lose(): void;
  /** Kills the process. Messages that it has sent on broken connections may still arrive. */
  die(): void;
}

interface ReplicaOptions extends ScheduleOptions {
  readonly workMs?: number;
  /** Whether the replica has a handler for schedules as data, and no schedule of its own. */
  readonly isData?: boolean;
}

class SchedulerStage {
  readonly world: World;
  readonly servers: readonly Server[];
  termCount = 0;
  readonly #engine: Engine;
  readonly #begun = new Set<string>();
  /** Ticks whose handler has ended. */
  readonly #ended = new Set<number>();
  #pausedMs = Number.POSITIVE_INFINITY;
  #removedMs = Number.POSITIVE_INFINITY;

  constructor(engine: Engine, name: string, nodeCount: number) {
    this.#engine = engine;
    this.world = new World(name, { record: true });
    this.servers = Array.from(
      { length: nodeCount },
      (_, index) => new Server(this.world, { name: `node ${index + 1}`, drift: EXACT, clockOffsetMs: 0 }),
    );
    for (const server of this.servers) {
      server.beSettled();
      server.onExecuted = (at, args, reply) =>
        this.world.record(at.name, "node", () => `${args.join("; ")} -> ${JSON.stringify(reply)}`);
    }
  }

  async until(ms: number): Promise<void> {
    await this.world.run(ms, () => undefined);
  }

  tell(text: string): void {
    this.world.record("world", "fault", () => text);
  }

  /**
   * Starts a replica with one schedule, which has a tick each second. The replica leads in `term`, or never if `term`
   * is undefined. Its handler takes `workMs`.
   */
  replica(
    name: string,
    term: number | undefined,
    { workMs = 0, isData = false, ...options }: ReplicaOptions = {},
  ): Replica {
    const { random } = this.world;
    const machine = new Machine(this.world, { name, drift: EXACT, wallOffsetMs: 0, stallChance: 0, longestStallMs: 0 });
    const network = { delayMs: 1, jitterMs: 0, slowChance: 0, slowMs: 0 };
    const links = this.servers.map((server) => new Link(machine, server, network));
    const redlock = new this.#engine.core.Redlock(links, {
      ttl: 60_000,
      maxTtl: 60_000,
      nodeTimeout: 1_500,
      clock: machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
    const election = {
      redlock,
      name: ELECTION,
      run: () => undefined,
      health: () => undefined,
      leader: () => undefined,
    };
    const scheduler = new this.#engine.scheduler.LeaderScheduler({
      election: election as unknown as LeaderElection,
      // Requests for the history would change the numbers of the messages that a story counts.
      history: 0,
    });
    scheduler.on("error", (error) => this.world.record(name, "call", () => String(error)));
    const handler = async ({ id, attempt, scheduledAt }: Tick): Promise<void> => {
      const atMs = scheduledAt.getTime() - EPOCH_MS;
      this.world.record(name, "call", () => `tick of ${atMs} ms, attempt ${attempt}`);
      if (this.#begun.has(`${id} ${attempt}`))
        this.world.violate(ELECTION_INVARIANTS.attempts, `attempt ${attempt} of ${id} began again, on ${name}`);
      if (atMs > this.#pausedMs)
        this.world.violate(ELECTION_INVARIANTS.pause, `${id} ran on ${name}, paused at ${this.#pausedMs} ms`);
      if (atMs > this.#removedMs)
        this.world.violate(ELECTION_INVARIANTS.removed, `${id} ran on ${name}, removed at ${this.#removedMs} ms`);
      this.#begun.add(`${id} ${attempt}`);
      await new Promise<void>((resolve) => void machine.clock.schedule(workMs, resolve));
      this.#ended.add(atMs);
    };
    if (isData) scheduler.handle("k", handler);
    else scheduler.every("s", PERIOD_MS, handler, { catchup: "all", ...options });
    const state = { isCurrent: true };
    const over = new AbortController();
    const led = { election: ELECTION, term, fencingToken: term, isCurrent: () => state.isCurrent, signal: over.signal };
    // By this time the replica is connected.
    this.world.at(this.world.nowMs + 300, () => {
      if (term === undefined) return;
      this.termCount += 1;
      this.world.record(name, "grant", () => `leads (${term})`);
      machine.deliver("timer", () => void scheduler.lead(led as unknown as LeaderTerm));
    });
    return {
      links,
      scheduler,
      lose: () => {
        state.isCurrent = false;
        machine.deliver("timer", () => over.abort(new Error("the term is over")));
      },
      die: () => {
        this.tell(`${name} dies`);
        machine.kill();
      },
    };
  }

  /** Writes the schedule as data. Its ticks are `offset` ms after the full seconds. */
  define({ scheduler }: Replica, offset = 0): void {
    const options = { catchup: "all", delivery: "at-least-once", offset } as const;
    void scheduler
      .upsert("s", { kind: "k", every: PERIOD_MS, options })
      .then((outcome) => this.tell(`the schedule is ${outcome}`));
  }

  /** Removes the schedule as data, either alone or by writing an empty set. */
  remove({ scheduler }: Replica, how: "alone" | "by a set"): void {
    void (how === "alone" ? scheduler.remove("s") : scheduler.reconcile([])).then(() => {
      this.#removedMs = this.world.nowMs;
      this.tell(`the schedule is removed ${how}`);
    });
  }

  pause({ scheduler }: Replica): void {
    void scheduler.pause("s").then(() => {
      this.#pausedMs = this.world.nowMs;
      this.tell("the pause is confirmed");
    });
  }

  /** Checks that no tick of this time has run. */
  checkNone(atMs: number): void {
    if (this.#ended.has(atMs))
      this.world.violate(ELECTION_INVARIANTS.removed, `the tick of ${atMs} ms is of old times`);
  }

  /** Checks that every tick from `firstMs` to `lastMs` has run to its end. */
  checkTicks(lastMs: number, firstMs = PERIOD_MS): void {
    for (let atMs = firstMs; atMs <= lastMs; atMs += PERIOD_MS)
      if (!this.#ended.has(atMs))
        this.world.violate(ELECTION_INVARIANTS.atLeastOnce, `the tick of ${atMs} ms has not ended`);
  }
}

interface Story {
  readonly nodeCount: number;
  readonly about: string;
  readonly play: (stage: SchedulerStage) => Promise<void>;
}

const STORIES: Readonly<Record<string, Story>> = {
  "half of four": {
    nodeCount: 4,
    about:
      "Two of four nodes have A's claim of an at-least-once tick when A dies. B reads one of these two nodes, and the other two.",
    async play(stage) {
      const a = stage.replica("A", 1, { delivery: "at-least-once" });
      await stage.until(1_900);
      for (const link of a.links.slice(2)) link.stall("up", 10_000);
      await stage.until(3_500);
      a.die();
      const b = stage.replica("B", 2, { delivery: "at-least-once" });
      b.links[0]?.stall("up", 10_000);
      await stage.until(6_500);
      stage.checkTicks(6_000);
    },
  },
  "dead at work": {
    nodeCount: 3,
    about: "A dies while its handler runs, and so does B. Each later leader begins the next attempt.",
    async play(stage) {
      const options = { delivery: "at-least-once", maxAttempts: 3 } as const;
      const a = stage.replica("A", 1, { ...options, workMs: 60_000 });
      await stage.until(1_500);
      a.die();
      const b = stage.replica("B", 2, { ...options, workMs: 60_000 });
      await stage.until(1_900);
      b.die();
      stage.replica("C", 3, options);
      await stage.until(3_500);
      stage.checkTicks(3_000);
    },
  },
  "missed step": {
    nodeCount: 3,
    about:
      "Node 1 misses the step in which A begins a tick, and receives the next step. A dies while its handler runs, and B reads nodes 1 and 2.",
    async play(stage) {
      const options = { delivery: "at-least-once", overlap: "allowAll" } as const;
      const a = stage.replica("A", 1, { ...options, workMs: 60_000 });
      await stage.until(990);
      a.links[0]?.stall("up", 12);
      await stage.until(1_001.7);
      a.links[0]?.reset(0);
      await stage.until(1_997);
      a.links[2]?.stall("down", 10);
      await stage.until(2_002.7);
      for (const link of a.links) link.stall("up", 10_000);
      await stage.until(2_100);
      a.die();
      const b = stage.replica("B", 2, options);
      b.links[2]?.stall("up", 10_000);
      await stage.until(4_500);
      stage.checkTicks(4_000);
    },
  },
  "forgotten claim": {
    nodeCount: 3,
    about:
      "Nodes 1 and 3 have A's claim of a tick when A dies. Node 3 comes back empty, and B reaches nodes 2 and 3 first.",
    async play(stage) {
      const a = stage.replica("A", 1);
      await stage.until(1_990);
      a.links[1]?.stall("up", 1_000);
      await stage.until(2_100);
      a.die();
      stage.servers[2]?.crash({ amnesia: "empty", downMs: 10, stepMs: 0 });
      const b = stage.replica("B", 2);
      b.links[0]?.stall("up", 1_000);
      await stage.until(5_000);
    },
  },
  "paused for the next": {
    nodeCount: 3,
    about: "A learns of a pause, and dies.",
    async play(stage) {
      const a = stage.replica("A", 1);
      const operator = stage.replica("operator", undefined);
      await stage.until(1_500);
      stage.pause(operator);
      await stage.until(1_600);
      a.die();
      stage.replica("B", 2);
      await stage.until(3_500);
    },
  },
  "late step": {
    nodeCount: 3,
    about:
      "A is frozen beyond its lease and has sent a step. The step arrives after B has read the nodes, and before B's first step.",
    async play(stage) {
      const a = stage.replica("A", 1);
      await stage.until(1_700);
      const b = stage.replica("B", 2);
      await stage.until(1_990);
      for (const link of a.links) link.stall("up", 15);
      await stage.until(2_001.5);
      for (const link of b.links) link.stall("up", 10);
      await stage.until(4_000);
    },
  },
  "late copy": {
    nodeCount: 3,
    about:
      "Node 3 had missed a step, so A sent a complete copy, which is stuck in a connection that broke. The copy arrives after node 3 has received later steps and lost them.",
    async play(stage) {
      const a = stage.replica("A", 1);
      await stage.until(1_990);
      a.links[2]?.stall("up", 1);
      await stage.until(2_000.5);
      a.links[2]?.reset(0);
      await stage.until(2_995);
      a.links[0]?.stall("down", 15);
      await stage.until(3_002.7);
      a.links[2]?.stall("up", 3_000);
      await stage.until(3_050);
      a.links[2]?.reset(10_000);
      a.links[2]?.heal();
      await stage.until(3_995);
      a.links[0]?.stall("down", 15);
      await stage.until(4_990);
      a.links[1]?.stall("up", 20);
      await stage.until(5_002);
      a.links[1]?.reset(0);
      await stage.until(5_100);
      a.die();
      stage.tell("FLUSHALL on node 3");
      stage.servers[2]?.flush();
      await stage.until(6_100);
      const b = stage.replica("B", 2);
      b.links[0]?.stall("up", 2_000);
      await stage.until(10_000);
    },
  },
  "copy after the end": {
    nodeCount: 3,
    about:
      "A asks node 3 for orders, and A's term ends. Nodes 2 and 3 have B's tick when node 3 loses its data, and reports that it lacks A's state. C reads nodes 1 and 3.",
    async play(stage) {
      const a = stage.replica("A", 1);
      await stage.until(5_290);
      a.links[2]?.stall("up", 1_000);
      // A asks once in 5 s.
      await stage.until(5_600);
      a.lose();
      const b = stage.replica("B", 2);
      b.links[0]?.stall("up", 10_000);
      await stage.until(6_200);
      stage.tell("FLUSHALL on node 3");
      stage.servers[2]?.flush();
      await stage.until(6_400);
      b.die();
      const c = stage.replica("C", 3);
      c.links[1]?.stall("up", 2_000);
      await stage.until(10_000);
    },
  },
  "pause in the answer": {
    nodeCount: 3,
    about: "The message about a pause is late. A learns of the pause from the nodes that accept its claim.",
    async play(stage) {
      const a = stage.replica("A", 1);
      const operator = stage.replica("operator", undefined);
      await stage.until(1_985);
      for (const link of a.links) link.stall("down", 30);
      stage.pause(operator);
      await stage.until(3_500);
    },
  },
  "order on its way": {
    nodeCount: 3,
    about:
      "A pause is in the mailboxes of nodes 1 and 2. Only node 1 has A's step with the pause when A dies. B adopts the step, and dies when only node 2 has received it. C reads nodes 2 and 3.",
    async play(stage) {
      const a = stage.replica("A", 1);
      const operator = stage.replica("operator", undefined);
      await stage.until(1_500);
      void operator.links[2]?.close();
      stage.pause(operator);
      await stage.until(1_505.5);
      for (const link of a.links.slice(1)) link.stall("up", 10_000);
      await stage.until(1_600);
      a.die();
      const b = stage.replica("B", 2);
      await stage.until(1_895);
      b.links[2]?.stall("up", 100);
      await stage.until(1_901.5);
      b.links[0]?.stall("up", 10_000);
      await stage.until(1_903.5);
      b.die();
      await stage.until(2_000);
      const c = stage.replica("C", 3);
      c.links[0]?.stall("up", 3_000);
      await stage.until(4_500);
    },
  },
  "defined for the next": {
    nodeCount: 3,
    about: "A takes a schedule as data into the register, and dies. B leads.",
    async play(stage) {
      const a = stage.replica("A", 1, { isData: true });
      const operator = stage.replica("operator", undefined, { isData: true });
      await stage.until(500);
      stage.define(operator);
      await stage.until(1_600);
      a.die();
      stage.replica("B", 2, { isData: true });
      await stage.until(3_500);
      stage.checkTicks(3_000);
    },
  },
  "defined without a leader": {
    nodeCount: 3,
    about: "A schedule as data is written at 0.5 s. A leads from 3.6 s on, and runs the ticks since then.",
    async play(stage) {
      const operator = stage.replica("operator", undefined, { isData: true });
      await stage.until(500);
      stage.define(operator);
      await stage.until(3_300);
      stage.replica("A", 1, { isData: true });
      await stage.until(4_500);
      stage.checkTicks(4_000);
    },
  },
  "changed without a leader": {
    nodeCount: 3,
    about:
      "A dies at 1.6 s. The times of the schedule change at 4.2 s. B leads from 5.9 s on, and runs the ticks of the old times before the change, and of the new times after it.",
    async play(stage) {
      const a = stage.replica("A", 1, { isData: true });
      const operator = stage.replica("operator", undefined, { isData: true });
      await stage.until(500);
      stage.define(operator);
      await stage.until(1_600);
      a.die();
      await stage.until(4_200);
      stage.define(operator, 100);
      await stage.until(5_600);
      stage.replica("B", 2, { isData: true });
      await stage.until(6_800);
      stage.checkTicks(4_000);
      stage.checkTicks(6_100, 5_100);
      stage.checkNone(4_100);
      stage.checkNone(5_000);
    },
  },
  "removed without a leader": {
    nodeCount: 3,
    about:
      "A dies at 1.6 s. The schedule is removed at 4.2 s. B leads from 5.9 s on, and runs the ticks before the removal.",
    async play(stage) {
      const a = stage.replica("A", 1, { isData: true });
      const operator = stage.replica("operator", undefined, { isData: true });
      await stage.until(500);
      stage.define(operator);
      await stage.until(1_600);
      a.die();
      await stage.until(4_200);
      stage.remove(operator, "alone");
      await stage.until(5_600);
      stage.replica("B", 2, { isData: true });
      await stage.until(6_800);
    },
  },
  "late definition": {
    nodeCount: 3,
    about:
      "Node 3 keeps the order to add a schedule, which A has taken. The schedule is removed. B reads the old order.",
    play: (stage) => playLateDefinition(stage, "alone"),
  },
  "late definition after a set": {
    nodeCount: 3,
    about: "As before, and the schedule is removed by an empty set.",
    play: (stage) => playLateDefinition(stage, "by a set"),
  },
};

async function playLateDefinition(stage: SchedulerStage, how: "alone" | "by a set"): Promise<void> {
  const a = stage.replica("A", 1, { isData: true });
  const operator = stage.replica("operator", undefined, { isData: true });
  await stage.until(400);
  a.links[2]?.stall("up", 60_000);
  stage.define(operator);
  await stage.until(1_500);
  operator.links[2]?.stall("up", 60_000);
  stage.remove(operator, how);
  await stage.until(4_500);
  a.die();
  stage.replica("B", 2, { isData: true });
  await stage.until(8_500);
}

export const DIRECTED_SCHEDULERS: readonly string[] = Object.keys(STORIES);

export async function runDirectedScheduler(engine: Engine, name: string): Promise<ScheduleResult> {
  const story = STORIES[name];
  if (story === undefined) throw new RangeError(`there is no directed schedule ${name}`);
  const stage = new SchedulerStage(engine, name, story.nodeCount);
  await story.play(stage);
  return {
    seed: name,
    about: [story.about],
    violation: stage.world.violation,
    grants: stage.termCount,
    events: stage.world.eventCount,
    endMs: stage.world.nowMs,
    recordedEvents: stage.world.recordedEvents,
    intervals: [],
  };
}
