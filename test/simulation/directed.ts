/**
 * Schedules that random search rarely finds. Each tells one story, step by step, in which a single protection keeps an
 * invariant.
 */
import type { Lock, Redlock, RedlockOptions } from "@x/redlock-core";
import {
  Drift,
  type Hold,
  INVARIANTS,
  Link,
  LockChecker,
  Machine,
  Server,
  World,
} from "../../packages/testing/src/world.ts";
import { DIRECTED_SCHEDULERS, runDirectedScheduler } from "./directed-scheduler.ts";
import type { Engine } from "./engine.ts";
import { PERMIT_INVARIANTS } from "./permits/checker.ts";
import type { ScheduleResult } from "./schedule.ts";

const RESOURCE = "orders";
const TTL_MS = 1_000;
const EXACT = new Drift(0, 1_000, 0);

interface Clocks {
  readonly drift?: Drift;
  readonly wallOffsetMs?: number;
}

interface Actor {
  readonly machine: Machine;
  readonly links: readonly Link[];
  readonly redlock: Redlock;
}

class Stage {
  readonly world: World;
  readonly checker: LockChecker;
  readonly servers: readonly Server[];
  readonly #engine: Engine;
  readonly #isWritten: boolean;

  /** With `isWritten` the lock is the write side of a read-write lock. */
  constructor(engine: Engine, name: string, { nodeCount, isWritten = false }: Pick<Story, "nodeCount" | "isWritten">) {
    this.#engine = engine;
    this.#isWritten = isWritten;
    this.world = new World(name, { record: true });
    this.checker = new LockChecker(this.world);
    this.servers = Array.from(
      { length: nodeCount },
      (_, index) => new Server(this.world, { name: `node ${index + 1}`, drift: EXACT, clockOffsetMs: 0 }),
    );
    for (const server of this.servers) {
      server.beSettled();
      server.onExecuted = (at, args, reply) => {
        if (args.length < 2) return;
        this.world.record(at.name, "node", () => `${args.slice(1).join("; ")} -> ${JSON.stringify(reply)}`);
      };
    }
  }

  actor(name: string, options: RedlockOptions, { drift = EXACT, wallOffsetMs = 0 }: Clocks = {}): Actor {
    const { random } = this.world;
    const machine = new Machine(this.world, { name, drift, wallOffsetMs, stallChance: 0, longestStallMs: 0 });
    const network = { delayMs: 1, jitterMs: 0, slowChance: 0, slowMs: 0 };
    const links = this.servers.map((server) => new Link(machine, server, network));
    const redlock = new this.#engine.core.Redlock(links, {
      ttl: TTL_MS,
      maxTtl: TTL_MS,
      retryJitter: 0,
      clock: machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
      ...options,
    });
    return { machine, links, redlock };
  }

  async until(ms: number): Promise<void> {
    await this.world.run(ms, () => this.checker.check());
  }

  /** Lets the first node lose its data. Connections remain. */
  flush(): void {
    this.servers[0]?.flush();
    this.tell("FLUSHALL on node 1");
  }

  tell(text: string): void {
    this.world.record("world", "fault", () => text);
  }

  /** Starts one attempt. The hold is added to the returned list when it is granted. */
  tryAcquire(actor: Actor): Hold[] {
    return this.#hold(actor, () => {
      if (!this.#isWritten) return actor.redlock.tryAcquire(RESOURCE);
      return new this.#engine.semaphore.ReadWriteLock(actor.redlock, RESOURCE).write.tryAcquire();
    });
  }

  /** Repeats attempts for half a second. */
  acquire(actor: Actor): Hold[] {
    return this.#hold(actor, () => {
      if (!this.#isWritten) return actor.redlock.acquire(RESOURCE, { timeout: 500 });
      return new this.#engine.semaphore.ReadWriteLock(actor.redlock, RESOURCE).write.acquire({ timeout: 500 });
    });
  }

  release(actor: Actor, hold: Hold | undefined): void {
    if (hold === undefined) throw new Error(`${actor.machine.name} has nothing to release`);
    actor.machine.deliver("timer", () => {
      this.checker.released(hold);
      void hold.lock.release();
    });
  }

  #hold(actor: Actor, ask: () => Promise<Lock | null>): Hold[] {
    const holds: Hold[] = [];
    actor.machine.deliver("timer", () => {
      void ask().then(
        (lock) => {
          if (lock !== null) holds.push(this.#granted(actor, lock));
        },
        () => undefined,
      );
    });
    return holds;
  }

  extend(actor: Actor, hold: Hold | undefined): void {
    if (hold === undefined) throw new Error(`${actor.machine.name} has nothing to extend`);
    actor.machine.deliver("timer", () => {
      void hold.lock.extend().catch(() => undefined);
    });
  }

  forceRelease(actor: Actor): void {
    actor.machine.deliver("timer", () => {
      this.world.record(actor.machine.name, "call", () => `takes ${RESOURCE} away by force`);
      const forcing = this.checker.forcing(RESOURCE, TTL_MS);
      void actor.redlock.forceRelease(RESOURCE).then((isTaken) => {
        if (isTaken) this.checker.forced(forcing);
      });
    });
  }

  /** A routine makes two calls that join its lock, and waits for neither. Both calls work for a while. */
  useTwice({ machine, redlock }: Actor): void {
    let workers = 0;
    const work = async (lock: Lock): Promise<void> => {
      workers += 1;
      if (workers > 1) this.world.violate(INVARIANTS.exclusion, "two calls that joined a lock work at once");
      await new Promise<void>((resolve) => machine.clock.schedule(50, resolve));
      if (!lock.isHeld()) this.world.violate(INVARIANTS.continuity, "a call lost the lock that it had joined");
      workers -= 1;
    };
    const refused = (error: unknown): void => this.world.violate(INVARIANTS.continuity, String(error));
    machine.deliver("timer", () => {
      const used = redlock.using(RESOURCE, () => {
        for (let call = 0; call < 2; call += 1) {
          redlock.using(RESOURCE, work, { reentrancy: "join" }).catch(refused);
        }
      });
      used.catch(refused);
    });
  }

  /**
   * A routine calls `using` for a lock that it holds, and then makes a call that joins, under which it releases the
   * lock.
   */
  useWithin({ machine, redlock }: Actor): void {
    machine.deliver("timer", () => {
      void redlock.using(RESOURCE, async (outer) => {
        const askedMs = this.world.nowMs;
        await redlock.using(RESOURCE, () => undefined).catch(() => undefined);
        if (this.world.nowMs > askedMs + 1) this.world.violate(INVARIANTS.answers, "a call waited for its own caller");
        const join = { reentrancy: "join" } as const;
        const { signal } = await redlock.using(
          RESOURCE,
          async (lock) => {
            const heard = lock.signal;
            await outer.release();
            return { signal: heard };
          },
          join,
        );
        if (!signal.aborted) this.world.violate(INVARIANTS.honestEnd, "a call was not told that its lock was released");
      });
    });
  }

  #granted(actor: Actor, lock: Lock): Hold {
    this.world.record(actor.machine.name, "grant", () => `holds ${RESOURCE} (${lock.fencingToken})`);
    return this.checker.granted(actor.machine, lock);
  }
}

interface Story {
  readonly nodeCount: number;
  readonly about: string;
  readonly isWritten?: boolean;
  readonly play: (stage: Stage) => Promise<void>;
}

const OF_LOCKS: Readonly<Record<string, Story>> = {
  "late extension": {
    nodeCount: 3,
    about:
      "A is frozen while the answers to its extension wait in its sockets, and wakes after its validity has ended.",
    async play(stage) {
      await stage.until(2_000);
      const a = stage.actor("A", { nodeTimeout: 500 });
      const b = stage.actor("B", {});
      await stage.until(2_100);
      const holds = stage.tryAcquire(a);
      await stage.until(2_950);
      stage.extend(a, holds[0]);
      await stage.until(2_951.5);
      stage.tell("A is frozen for 200 ms");
      a.machine.freeze(200, "message");
      await stage.until(2_960);
      stage.tryAcquire(b);
      await stage.until(3_095);
      stage.tryAcquire(b);
      await stage.until(4_000);
    },
  },
  "hidden gap": {
    nodeCount: 3,
    about:
      "Node 1 loses its data twice, and votes for B in between. A's extension must not count the key that it sets again.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 250, quarantine: false });
      const b = stage.actor("B", { nodeTimeout: 250, quarantine: false });
      await stage.until(1_000);
      const holds = stage.tryAcquire(a);
      await stage.until(1_500);
      stage.flush();
      await stage.until(1_850);
      b.links[2]?.stall("up", 170);
      stage.tryAcquire(b);
      await stage.until(1_860);
      stage.flush();
      await stage.until(1_975);
      a.links[2]?.stall("up", 200);
      stage.extend(a, holds[0]);
      await stage.until(3_000);
    },
  },
  "slow clock": {
    nodeCount: 3,
    about: "A's clock loses 0.9 % against the clocks of the nodes. B asks as soon as the keys have expired.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 20 }, { drift: new Drift(-0.009, 10_000, 0) });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      stage.tryAcquire(a);
      await stage.until(2_001.5);
      stage.tryAcquire(b);
      await stage.until(3_000);
    },
  },
  "slow answer": {
    nodeCount: 3,
    about: "The grants reach A 150 ms late. B asks as soon as the keys have expired.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 300 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      for (const link of a.links) link.stall("down", 150);
      stage.tryAcquire(a);
      await stage.until(2_003);
      stage.tryAcquire(b);
      await stage.until(3_000);
    },
  },
  "slow extension": {
    nodeCount: 3,
    about: "The answers to A's extension reach it 150 ms late. B asks as soon as the keys have expired.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 300 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      const holds = stage.tryAcquire(a);
      await stage.until(1_500);
      for (const link of a.links) link.stall("down", 150);
      stage.extend(a, holds[0]);
      await stage.until(2_504);
      stage.tryAcquire(b);
      await stage.until(4_000);
    },
  },
  "grants after the end": {
    nodeCount: 3,
    about: "A is frozen while the grants wait in its sockets, for longer than the lease. B asks before A resumes.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 2_000 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      stage.tryAcquire(a);
      await stage.until(1_001.5);
      stage.tell("A is frozen for 1,100 ms");
      a.machine.freeze(1_100, "message");
      await stage.until(2_010);
      stage.tryAcquire(b);
      await stage.until(3_000);
    },
  },
  "late release": {
    nodeCount: 1,
    about:
      "A's first attempt and its release are stuck in a connection that breaks. Both arrive after A's second attempt was granted.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 20 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      a.links[0]?.stall("up", 400);
      stage.acquire(a);
      await stage.until(1_030);
      a.links[0]?.reset(1_000);
      a.links[0]?.heal();
      await stage.until(1_450);
      stage.tryAcquire(b);
      await stage.until(3_000);
    },
  },
  "quarantined extension": {
    nodeCount: 3,
    about:
      "Node 1 votes for B, then loses its data. A's extension sets its key again on node 1, and must not count the node in its second try.",
    async play(stage) {
      await stage.until(2_000);
      const a = stage.actor("A", { nodeTimeout: 20 });
      const b = stage.actor("B", { nodeTimeout: 300 });
      await stage.until(2_100);
      a.links[0]?.stall("up", 100);
      const holds = stage.tryAcquire(a);
      await stage.until(2_110);
      a.links[0]?.reset(0);
      await stage.until(2_900);
      b.links[2]?.stall("up", 220);
      stage.tryAcquire(b);
      await stage.until(2_910);
      stage.flush();
      await stage.until(3_020);
      a.links[2]?.stall("up", 200);
      stage.extend(a, holds[0]);
      await stage.until(4_000);
    },
  },
  "suspended and set back": {
    nodeCount: 3,
    about:
      "A's machine is suspended for longer than its lease, and its wall clock is set back by as much. B asks after the suspend.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 20 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      stage.tryAcquire(a);
      await stage.until(1_100);
      stage.tell("A is suspended for 1.5 s, and its wall clock is set back by 1.5 s");
      a.machine.suspend(1_500);
      await stage.until(2_500);
      stage.tryAcquire(b);
      a.machine.stepWallClock(-1_500);
      await stage.until(4_000);
    },
  },
  "late vote over a loss": {
    nodeCount: 3,
    about:
      "B's clock is 500 ms behind. Node 1 forgets that it has voted for A, and votes for B when its quarantine is over. B reads the vote late, because B is frozen.",
    async play(stage) {
      await askOverALoss(stage, { nodeTimeout: 250, isFrozen: true });
    },
  },
  "node clock set back": {
    nodeCount: 1,
    about: "The clock of the one node is set back by an hour. B's token must still be above A's.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 20 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      stage.tryAcquire(a);
      await stage.until(2_100);
      stage.servers[0]?.crash({ amnesia: "durable", downMs: 10, stepMs: -3_600_000 });
      await stage.until(5_000);
      stage.tryAcquire(b);
      await stage.until(3_700_000);
    },
  },
  "taken away": {
    nodeCount: 3,
    about: "An operator releases A's lock by force, and A asks for an extension.",
    async play(stage) {
      const a = stage.actor("A", {});
      const operator = stage.actor("operator", {});
      await stage.until(1_000);
      const holds = stage.tryAcquire(a);
      await stage.until(1_200);
      stage.forceRelease(operator);
      await stage.until(1_300);
      stage.extend(a, holds[0]);
      await stage.until(3_000);
    },
  },
  "taken away from two": {
    nodeCount: 3,
    about:
      "Node 3 has the key of B's failed attempt, the others have A's. The operator reaches nodes 1 and 3: a quorum. A must not set its key again on node 3.",
    async play(stage) {
      const a = stage.actor("A", {});
      const b = stage.actor("B", { nodeTimeout: 20 });
      const operator = stage.actor("operator", {});
      await stage.until(1_000);
      for (const link of b.links.slice(0, 2)) link.stall("up", 2_000);
      stage.tryAcquire(b);
      await stage.until(1_005);
      b.links[2]?.stall("up", 2_000);
      await stage.until(1_100);
      const holds = stage.tryAcquire(a);
      await stage.until(1_200);
      operator.links[1]?.stall("up", 2_000);
      stage.forceRelease(operator);
      await stage.until(1_800);
      stage.extend(a, holds[0]);
      await stage.until(3_000);
    },
  },
  "nested calls": {
    nodeCount: 3,
    about: "A calls `using` inside `using` of the same resource.",
    async play(stage) {
      const a = stage.actor("A", { quarantine: false });
      await stage.until(1_000);
      stage.useTwice(a);
      await stage.until(2_000);
      stage.useWithin(a);
      await stage.until(20_000);
      stage.tryAcquire(a);
      await stage.until(20_100);
    },
  },
};

/**
 * Nodes 1 and 2 grant A the lock, and A releases it. Node 1 loses its data, and C starts its quarantine. B's clock is
 * 500 ms behind. Its request reaches node 1 after 955 ms, when the quarantine is over.
 */
async function askOverALoss(
  stage: Stage,
  { nodeTimeout, isFrozen }: { readonly nodeTimeout: number; readonly isFrozen: boolean },
): Promise<void> {
  const a = stage.actor("A", { nodeTimeout: 250 });
  const b = stage.actor("B", { nodeTimeout }, { wallOffsetMs: -500 });
  const c = stage.actor("C", { nodeTimeout: 250 });
  await stage.until(1_000);
  a.links[2]?.stall("up", 5_000);
  const held = stage.tryAcquire(a);
  await stage.until(1_050);
  stage.release(a, held[0]);
  await stage.until(1_110);
  stage.flush();
  c.machine.deliver("timer", () => void c.redlock.tryAcquire("stock").catch(() => undefined));
  await stage.until(1_480);
  b.links[0]?.stall("up", 955);
  stage.tryAcquire(b);
  await stage.until(1_483);
  if (isFrozen) {
    stage.tell("B is frozen for 957 ms");
    b.machine.freeze(957, "message");
  }
  await stage.until(3_000);
}

/** Schedules outside the assumptions. An invariant breaks in them although every protection is in place. */
const OUTSIDE: Readonly<Record<string, Story>> = {
  "clocks too far apart over a loss": {
    nodeCount: 3,
    about:
      "The clocks of A and B are 500 ms apart. Over a loss of data they must agree better than maxTtl - nodeTimeout, which is 0 here.",
    async play(stage) {
      await askOverALoss(stage, { nodeTimeout: TTL_MS, isFrozen: false });
    },
  },
};

function written(name: string): Story {
  const story = OF_LOCKS[name];
  if (story === undefined) throw new RangeError(`there is no directed schedule ${name}`);
  return { ...story, isWritten: true };
}

const STORIES: Readonly<Record<string, Story>> = {
  ...OF_LOCKS,
  "hidden gap of a writer": written("hidden gap"),
  "quarantined extension of a writer": written("quarantined extension"),
  "slow extension of a writer": written("slow extension"),
  "slow grant of a writer": {
    nodeCount: 1,
    isWritten: true,
    about: "The answer to A reaches it 150 ms late. B asks as soon as A's lease has ended on the node.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 300 });
      const b = stage.actor("B", { nodeTimeout: 20 });
      await stage.until(1_000);
      for (const link of a.links) link.stall("down", 150);
      stage.tryAcquire(a);
      await stage.until(2_004);
      stage.tryAcquire(b);
      await stage.until(3_000);
    },
  },
  "a part of the nodes": {
    nodeCount: 3,
    isWritten: true,
    about:
      "B waits for A. Node 1 would let B in, and node 3 does not answer B. When A releases, node 2 calls B, and node 1 must call B as well.",
    async play(stage) {
      const a = stage.actor("A", { nodeTimeout: 50, quarantine: false });
      const b = stage.actor("B", { nodeTimeout: 50, quarantine: false });
      await stage.until(1_000);
      const held = stage.tryAcquire(a);
      await stage.until(1_100);
      stage.flush();
      b.links[2]?.stall("both", 2_000);
      const holds = stage.acquire(b);
      await stage.until(1_400);
      stage.release(a, held[0]);
      await stage.until(1_500);
      if (holds.length === 0) stage.world.violate(PERMIT_INVARIANTS.wake, "B was not called when A had gone");
      await stage.until(3_000);
    },
  },
};

export const DIRECTED: readonly string[] = [...Object.keys(STORIES), ...DIRECTED_SCHEDULERS];

export async function runDirected(engine: Engine, name: string): Promise<ScheduleResult> {
  if (DIRECTED_SCHEDULERS.includes(name)) return await runDirectedScheduler(engine, name);
  const story = STORIES[name] ?? OUTSIDE[name];
  if (story === undefined) throw new RangeError(`there is no directed schedule ${name}`);
  const stage = new Stage(engine, name, story);
  await story.play(stage);
  return {
    seed: name,
    about: [story.about],
    violation: stage.world.violation,
    grants: stage.checker.grantCount,
    events: stage.world.eventCount,
    endMs: stage.world.nowMs,
    recordedEvents: stage.world.recordedEvents,
    intervals: stage.checker.intervals,
  };
}
