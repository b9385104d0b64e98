/** A client process of the simulation: a real `Redlock` on simulated nodes, and tasks that use it as an application would. */
import type { Lock, Redlock } from "@x/redlock-core";
import {
  type Hold,
  INVARIANTS,
  Link,
  type LockChecker,
  type Machine,
  type Server,
  type World,
} from "../../packages/testing/src/world.ts";
import type { Engine } from "./engine.ts";
import type { Faults, Victim } from "./faults.ts";
import { drawMachine, type Setting } from "./setting.ts";

export interface ClientParts {
  readonly world: World;
  readonly setting: Setting;
  readonly servers: readonly Server[];
  readonly checker: LockChecker;
  readonly engine: Engine;
  readonly faults: () => Faults;
  readonly onKilled: () => void;
}

interface Call {
  readonly what: string;
  readonly startedMs: number;
  readonly frozenMs: number;
  readonly limitMs: number;
}

/** A client corrects a ballot even after its deadline. Each correction takes at most a node's timeout. */
const FREE_ATTEMPTS = 6;

export class Client implements Victim {
  readonly machine: Machine;
  readonly links: readonly Link[];
  readonly redlock: Redlock;
  readonly #parts: ClientParts;
  readonly #calls = new Set<Call>();

  constructor(parts: ClientParts, name: string) {
    const { world, setting, servers, engine } = parts;
    const { random } = world;
    this.#parts = parts;
    this.machine = drawMachine(world, name, setting);
    this.links = servers.map((server) => new Link(this.machine, server, setting.network));
    this.redlock = new engine.core.Redlock(this.links, {
      ttl: setting.maxTtl,
      maxTtl: setting.maxTtl,
      driftFactor: setting.driftFactor,
      nodeTimeout: setting.nodeTimeout,
      retryJitter: setting.retryJitter,
      retryDelay: 20,
      clock: this.machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
  }

  /** Starts tasks that acquire and release locks until the world is quiet. */
  start(): void {
    for (let task = 0; task < this.#parts.setting.tasksPerMachine; task += 1) {
      this.machine.deliver("timer", () => void this.#task());
    }
  }

  kill(): void {
    this.machine.kill();
    this.#calls.clear();
    this.#parts.checker.killed(this.machine);
    this.#parts.onKilled();
  }

  /** Returns the calls that should have been answered by now. */
  overdue(): readonly string[] {
    return [...this.#calls].filter((call) => this.#isOverdue(call)).map(({ what }) => what);
  }

  /** Acquires a lock within `timeout` after the faults have stopped. Otherwise the world did not recover. */
  async recover(resource: string, timeout: number): Promise<void> {
    try {
      const lock = await this.#answered(`acquire ${resource}`, timeout, () =>
        this.redlock.acquire(resource, { timeout, ttl: this.#parts.setting.maxTtl }),
      );
      const hold = this.#granted(lock);
      this.#parts.checker.released(hold);
      void lock.release();
    } catch (error) {
      if (this.machine.isAlive) {
        this.#parts.world.violate(
          INVARIANTS.recovery,
          `${this.machine.name} got no lock after the faults: ${String(error)}`,
        );
      }
    }
  }

  /**
   * Makes one attempt while a node answers too late, and releases a granted lock immediately. A later check must find
   * no key.
   */
  async passBy(resource: string): Promise<void> {
    const lock = await this.redlock.tryAcquire(resource, { ttl: this.#parts.setting.maxTtl }).catch(() => null);
    await lock?.release();
  }

  async #task(): Promise<void> {
    const { world } = this.#parts;
    while (!world.isQuiet && this.machine.isAlive) {
      await this.sleep(world.random.between(0, 0.3) * this.#parts.setting.maxTtl * world.random.fraction());
      if (world.isQuiet) return;
      if (world.random.chance(this.#parts.setting.forceChance)) await this.#force();
      const hold = await this.#acquire();
      if (hold !== undefined) await this.#hold(hold);
    }
  }

  async #acquire(): Promise<Hold | undefined> {
    const { world, setting } = this.#parts;
    const { random } = world;
    const resources =
      setting.resources.length > 1 && random.chance(0.2) ? setting.resources : random.pick(setting.resources);
    const ttl = Math.max(60, Math.round(setting.maxTtl * (random.chance(0.5) ? random.between(0.1, 1) : 1)));
    const maxHold = random.chance(0.1) ? Math.round(random.between(0.2, 2) * setting.maxTtl) : Number.POSITIVE_INFINITY;
    const options = { ttl, autoExtend: random.chance(0.25), maxHold };
    if (random.chance(0.25)) await this.#untilExpiry(resources);
    try {
      if (random.chance(0.3)) {
        const attempt = (): Promise<Lock | null> => this.redlock.tryAcquire(resources, options);
        const lock = await this.#answered(`tryAcquire ${String(resources)}`, 0, attempt);
        return lock === null ? undefined : this.#granted(lock, maxHold);
      }
      const timeout = Math.round(random.between(0.05, 1.5) * setting.maxTtl);
      const lock = await this.#answered(`acquire ${String(resources)}`, timeout, () =>
        this.redlock.acquire(resources, { ...options, timeout }),
      );
      return this.#granted(lock, maxHold);
    } catch (error) {
      if (error instanceof this.#parts.engine.core.RedlockError) return undefined;
      throw error;
    }
  }

  /** Waits like an adversary until just before the keys expire, if they expire soon. */
  async #untilExpiry(resources: string | readonly string[]): Promise<void> {
    const { servers, setting, world } = this.#parts;
    const [resource = ""] = [resources].flat();
    const leftMs = servers
      .map((server) => (server.store.peek(resource)?.expiresMs ?? 0) - server.nowUs() / 1_000)
      .toSorted((a, b) => a - b)[Math.floor(setting.nodeCount / 2)];
    if (leftMs === undefined || leftMs <= 0 || leftMs > setting.maxTtl) return;
    await this.sleep(Math.max(0, leftMs - world.random.between(0, 2 * setting.network.delayMs)));
  }

  #granted(lock: Lock, maxHold?: number): Hold {
    const { world, checker } = this.#parts;
    const hold = checker.granted(this.machine, lock, maxHold);
    world.record(this.machine.name, "grant", () => `holds ${lock.resources.join(", ")} (${lock.fencingToken})`);
    this.#parts.faults().provoke({ machine: this.machine });
    return hold;
  }

  /** Works under the lock: writes, extends, and releases the lock or forgets to release it. */
  async #hold(hold: Hold): Promise<void> {
    const { world, setting, checker } = this.#parts;
    const { random } = world;
    const { lock } = hold;
    const { signal } = lock;
    const steps = random.integer(0, 4);
    for (let step = 0; step < steps; step += 1) {
      await this.sleep(random.between(0, 0.5) * setting.maxTtl * random.fraction());
      if (random.chance(0.6)) this.#write(hold);
      if (random.chance(0.4)) await this.#extend(hold);
    }
    if (random.chance(0.7)) {
      checker.released(hold);
      world.record(this.machine.name, "end", () => `releases ${lock.resources.join(", ")} (${lock.fencingToken})`);
      await this.#answered("release", 0, () => lock.release());
      this.#parts.faults().provoke({ machine: this.machine });
      return;
    }
    await this.#untilOver(hold, signal);
    this.#write(hold);
    // A wall clock that was set and set back ended the lock for a moment only.
    if (!signal.aborted) await lock.release();
  }

  /** Releases a lock by force, as an operator does. */
  async #force(): Promise<void> {
    const { world, setting, checker } = this.#parts;
    const resource = world.random.pick(setting.resources);
    world.record(this.machine.name, "call", () => `takes ${resource} away by force`);
    const forcing = checker.forcing(resource, setting.maxTtl);
    const isTaken = await this.#answered("forceRelease", 0, () => this.redlock.forceRelease(resource));
    if (isTaken) checker.forced(forcing);
  }

  async #extend(hold: Hold): Promise<void> {
    const { random } = this.#parts.world;
    const { maxTtl } = this.#parts.setting;
    const ttl = random.chance(0.5) ? undefined : Math.max(60, Math.round(random.between(0.1, 1) * maxTtl));
    const wasForced = hold.lastEndMs !== undefined;
    try {
      await this.#answered("extend", maxTtl, () => hold.lock.extend(ttl));
    } catch (error) {
      if (!(error instanceof this.#parts.engine.core.RedlockError)) throw error;
      return;
    }
    if (wasForced) this.#parts.world.violate(INVARIANTS.force, `${this.machine.name} extended what was taken away`);
  }

  /**
   * Never asks the lock: the signal must abort by itself, as exactly as a timer can, and within a second after a
   * suspend.
   */
  async #untilOver(hold: Hold, signal: AbortSignal): Promise<void> {
    const { world, checker } = this.#parts;
    const { machine, lock } = hold;
    while (checker.believes(hold) && !signal.aborted) {
      if (world.isQuiet) await lock.release();
      await this.sleep(20);
    }
    if (hold.end === undefined) return;
    const leftMs = Math.max(hold.end.monotonicMs - machine.monotonicMs(), machine.suspendedMs() > 0 ? 1_000 : 0);
    await this.sleep(Math.max(leftMs + 20, 0));
    const frozenMs = machine.frozenMs;
    await this.sleep(50);
    if (signal.aborted || !machine.isAlive || machine.frozenMs > frozenMs || checker.believes(hold)) return;
    world.violate(
      INVARIANTS.honestEnd,
      `the signal of ${machine.name} (${lock.fencingToken}) did not abort when its validity ended`,
    );
  }

  /** Sends a write of the application, whether the lock is still held or not. The write takes some time to arrive. */
  #write(hold: Hold): void {
    const { world, checker } = this.#parts;
    const arrivesMs = world.nowMs + world.random.between(0, 30);
    world.at(arrivesMs, () => {
      for (const resource of hold.resources) checker.write(hold, resource);
    });
  }

  async #answered<Result>(what: string, timeoutMs: number, run: () => Promise<Result>): Promise<Result> {
    const { nodeTimeout } = this.#parts.setting;
    const call: Call = {
      what,
      startedMs: this.#parts.world.nowMs,
      frozenMs: this.machine.frozenMs,
      limitMs: 1.02 * (timeoutMs + FREE_ATTEMPTS * nodeTimeout) + 200,
    };
    this.#calls.add(call);
    try {
      return await run();
    } finally {
      if (this.#isOverdue(call)) this.#tellOverdue(call);
      this.#calls.delete(call);
    }
  }

  #isOverdue(call: Call): boolean {
    const frozenMs = this.machine.frozenMs - call.frozenMs;
    return this.machine.isAlive && this.#parts.world.nowMs - call.startedMs - frozenMs > call.limitMs;
  }

  #tellOverdue(call: Call): void {
    const tookMs = this.#parts.world.nowMs - call.startedMs;
    this.#parts.world.violate(
      INVARIANTS.answers,
      `${call.what} of ${this.machine.name} took ${tookMs.toFixed(0)} ms, at most ${call.limitMs.toFixed(0)} allowed`,
    );
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.machine.clock.schedule(ms, resolve);
    });
  }
}
