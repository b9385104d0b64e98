/**
 * A client process: a real `Redlock` with its semaphore or read-write lock on simulated nodes. Several tasks use them.
 */
import type { Lock, Redlock } from "@x/redlock-core";
import { Link, type Machine, type Server, type World } from "../../../packages/testing/src/world.ts";
import type { Engine } from "../engine.ts";
import type { Faults, Victim } from "../faults.ts";
import { drawMachine, type Setting } from "../setting.ts";
import { type Hold, PERMIT_INVARIANTS, type PermitChecker } from "./checker.ts";

export const NAME = "pool";

/**
 * Settings in addition to the general setting: the number of permits of a semaphore, or a read-write lock, which may
 * have several nodes.
 */
export interface PoolSetting {
  readonly nodeCount: number;
  readonly kind: "semaphore" | "readwrite";
  readonly capacity: number;
  readonly quarantine: boolean;
}

export interface ClientParts {
  readonly world: World;
  readonly setting: Setting;
  readonly pool: PoolSetting;
  readonly servers: readonly Server[];
  readonly checker: PermitChecker;
  readonly engine: Engine;
  readonly faults: () => Faults;
  readonly onKilled: () => void;
}

interface Wish {
  readonly ttl: number;
  readonly timeout: number;
  readonly autoExtend: boolean;
}

export class PermitClient implements Victim {
  readonly machine: Machine;
  readonly links: readonly Link[];
  readonly redlock: Redlock;
  readonly #parts: ClientParts;
  readonly #acquire: (permits: number, wish: Wish) => Promise<Lock>;

  constructor(parts: ClientParts, name: string) {
    const { world, setting, pool, servers, engine } = parts;
    const { random } = world;
    this.#parts = parts;
    this.machine = drawMachine(world, name, setting);
    this.links = servers.map((server) => new Link(this.machine, server, setting.network));
    this.redlock = new engine.core.Redlock(this.links, {
      ttl: setting.maxTtl,
      maxTtl: setting.maxTtl,
      driftFactor: setting.driftFactor,
      nodeTimeout: setting.nodeTimeout,
      retryDelay: 20,
      quarantine: pool.quarantine,
      clock: this.machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
    if (pool.kind === "semaphore") {
      const semaphore = new engine.semaphore.Semaphore(this.redlock, NAME, { permits: pool.capacity });
      this.#acquire = (permits, wish) => semaphore.acquire({ permits, ...wish });
    } else {
      const { read, write } = new engine.semaphore.ReadWriteLock(this.redlock, NAME);
      this.#acquire = (permits, wish) => (permits === 1 ? read : write).acquire(wish);
    }
  }

  start(): void {
    for (let task = 0; task < this.#parts.setting.tasksPerMachine; task += 1) {
      this.machine.deliver("timer", () => void this.#task());
    }
  }

  kill(): void {
    this.machine.kill();
    this.#parts.checker.killed(this.machine);
    for (const link of this.links) link.abandon();
    this.#parts.onKilled();
  }

  /** Draws how many permits to acquire: some or all, as the kind of pool allows. */
  drawPermits(): number {
    const { world, pool } = this.#parts;
    if (pool.kind === "readwrite") return world.random.chance(0.6) ? 1 : pool.capacity;
    return world.random.chance(0.7) ? 1 : world.random.integer(1, pool.capacity);
  }

  /** Acquires permits, and runs `then` while they are held. */
  async take(permits: number, timeout: number, then: (hold: Hold) => Promise<void>): Promise<boolean> {
    const { checker, engine, setting } = this.#parts;
    const wish = { ttl: setting.maxTtl, timeout, autoExtend: true };
    try {
      const after = checker.tokensSoFar;
      const lock = await this.#acquire(permits, wish);
      await then(checker.granted(this.machine, lock, permits, after));
      return true;
    } catch (error) {
      if (error instanceof engine.core.RedlockError) return false;
      throw error;
    }
  }

  async release(hold: Hold): Promise<void> {
    this.#parts.checker.released(hold);
    await hold.lock.release();
  }

  /** Acquires and releases permits after the world has become quiet. Otherwise the world did not recover. */
  async recover(timeout: number): Promise<void> {
    const isDone = await this.take(this.drawPermits(), timeout, (hold) => this.release(hold));
    if (isDone || !this.machine.isAlive) return;
    this.#parts.world.violate(PERMIT_INVARIANTS.recovery, `${this.machine.name} got nothing after the faults`);
  }

  async #task(): Promise<void> {
    const { world, setting, checker, engine, faults } = this.#parts;
    const { random } = world;
    while (!world.isQuiet && this.machine.isAlive) {
      await this.sleep(random.between(0, 0.2) * setting.maxTtl * random.fraction());
      if (world.isQuiet) return;
      const permits = this.drawPermits();
      const ttl = Math.max(60, Math.round(setting.maxTtl * random.between(0.1, 1)));
      const timeout = random.chance(0.3) ? 0 : Math.round(random.between(0.05, 2) * setting.maxTtl);
      const after = checker.tokensSoFar;
      try {
        const lock = await this.#acquire(permits, { ttl, timeout, autoExtend: random.chance(0.4) });
        const hold = checker.granted(this.machine, lock, permits, after);
        world.record(this.machine.name, "grant", () => `holds ${permits} (${lock.fencingToken})`);
        faults().provoke({ machine: this.machine });
        await this.#hold(hold);
      } catch (error) {
        if (!(error instanceof engine.core.RedlockError)) throw error;
      }
    }
  }

  /** Works, extends, and releases the permits or forgets to release them. */
  async #hold(hold: Hold): Promise<void> {
    const { world, setting, faults } = this.#parts;
    const { random } = world;
    const { signal } = hold.lock;
    for (let step = random.integer(0, 3); step > 0; step -= 1) {
      await this.sleep(random.between(0, 0.5) * setting.maxTtl * random.fraction());
      if (random.chance(0.4)) await this.#extend(hold.lock);
    }
    if (random.chance(0.7)) {
      world.record(this.machine.name, "end", () => `releases (${hold.lock.fencingToken})`);
      await this.release(hold);
      faults().provoke({ machine: this.machine });
      return;
    }
    while (!signal.aborted && !world.isQuiet) await this.sleep(20);
    await this.release(hold);
  }

  async #extend(lock: Lock): Promise<void> {
    try {
      await lock.extend();
    } catch (error) {
      if (!(error instanceof this.#parts.engine.core.RedlockError)) throw error;
    }
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.machine.clock.schedule(ms, resolve);
    });
  }
}
