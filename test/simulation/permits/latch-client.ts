/** A client process of the simulation that counts latches down and waits for them, and the facts about a latch. */
import type { Redlock } from "@x/redlock-core";
import type { CountDownLatch } from "@x/semaphore";
import {
  Link,
  type Machine,
  type NetworkOptions,
  type SeededRandom,
  type Server,
  type World,
} from "../../../packages/testing/src/world.ts";
import type { Engine } from "../engine.ts";
import type { Victim } from "../faults.ts";
import { drawMachine, type Setting } from "../setting.ts";

export const DAY_MS = 86_400_000;

/** The time from one setting of a latch to the next. */
export interface Round {
  /** Count-downs that may count: all calls of the round, and earlier calls without an answer that may still arrive. */
  readonly called: Set<string>;
  /** Count-downs that certainly count. */
  readonly answered: Set<string>;
}

/** The facts about a latch, regardless of the answers of its node. */
export class LatchFacts {
  readonly name: string;
  readonly count: number;
  readonly keepFor: number;
  /** Whether each count-down has an ID. Without IDs, every call counts. */
  readonly hasIds: boolean;
  /** Whether the latch exists until the schedule ends. */
  readonly isLasting: boolean;
  round: Round = { called: new Set(), answered: new Set() };
  /** `asked`: the latch is being set, or the outcome of a set is unknown. */
  setting: "none" | "asked" | "asked anew" | "set" = "none";
  /** When the latest call began that was answered, and therefore prolonged the latch. */
  prolongedMs = Number.NEGATIVE_INFINITY;
  /** Calls without an answer, with the ID that each call counts down. */
  readonly unanswered = new Map<number, string>();
  calls = 0;

  constructor(random: SeededRandom, name: string, isSafe: boolean) {
    this.name = name;
    this.count = random.integer(1, 6);
    this.hasIds = random.chance(0.5);
    this.keepFor = random.chance(0.3) ? random.integer(1_000, 2_000) : DAY_MS;
    this.isLasting = isSafe && this.keepFor === DAY_MS;
  }

  get isDone(): boolean {
    return this.setting === "set" && this.round.answered.size >= this.count;
  }
}

/** The facts that a client knows about a latch. */
export type Latch = Pick<LatchFacts, "name" | "count" | "keepFor">;

export interface LatchClientParts {
  readonly engine: Engine;
  readonly world: World;
  readonly setting: Setting;
  readonly server: Server;
  readonly name: string;
  readonly retryDelay: number;
  readonly onKilled: () => void;
}

/** A client process: a real `Redlock` and its latches on the simulated node. */
export class LatchClient implements Victim {
  readonly machine: Machine;
  readonly network: NetworkOptions & { delayMs: number };
  readonly link: Link;
  readonly links: readonly Link[];
  readonly redlock: Redlock;
  readonly #engine: Engine;
  readonly #onKilled: () => void;

  constructor({ engine, world, setting, server, name, retryDelay, onKilled }: LatchClientParts) {
    const { random } = world;
    this.#engine = engine;
    this.#onKilled = onKilled;
    this.machine = drawMachine(world, name, setting);
    this.network = { ...setting.network };
    this.link = new Link(this.machine, server, this.network);
    this.links = [this.link];
    this.redlock = new engine.core.Redlock(this.links, {
      ttl: setting.maxTtl,
      maxTtl: setting.maxTtl,
      driftFactor: setting.driftFactor,
      nodeTimeout: setting.nodeTimeout,
      retryDelay,
      quarantine: false,
      clock: this.machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
  }

  kill(): void {
    this.machine.kill();
    this.link.abandon();
    this.#onKilled();
  }

  /** Runs `work` in this process. An error of the package ends the work. */
  do(work: (client: LatchClient) => Promise<unknown>): void {
    this.machine.deliver("timer", () => void this.#try(() => work(this)));
  }

  latch({ name, keepFor }: Latch): CountDownLatch {
    return new this.#engine.semaphore.CountDownLatch(this.redlock, name, { keepFor });
  }

  async set(facts: Latch): Promise<boolean | undefined> {
    return await this.#try(() => this.latch(facts).set(facts.count));
  }

  async left(facts: Latch): Promise<number | undefined> {
    return await this.#try(() => this.latch(facts).count());
  }

  /** Resolves with the remaining count, or with undefined if the node did not answer. */
  async countDown(facts: Latch, id?: string): Promise<number | "not set" | undefined> {
    return await this.#try(async () => {
      try {
        return await this.latch(facts).countDown(id);
      } catch (error) {
        if (error instanceof this.#engine.semaphore.LatchNotSetError) return "not set";
        throw error;
      }
    });
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.machine.clock.schedule(ms, resolve);
    });
  }

  async #try<Result>(work: () => Promise<Result>): Promise<Result | undefined> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof this.#engine.core.RedlockError)) throw error;
      return undefined;
    }
  }
}
