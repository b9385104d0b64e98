/**
 * One lock node in memory, and elections on it that end with their test. Time only passes while a test waits for it.
 */
import { LeaderElection, type LeaderElectionOptions } from "@x/leader";
import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { memoryNodes, VirtualClock } from "@x/testing";
import { expect, onTestFinished } from "vitest";
import { LEASE, MAX_TTL } from "./redis.ts";

/** Time between two checks. */
const STEP_MS = 10;

export class VirtualLab {
  readonly clock = new VirtualClock();
  readonly #nodes = memoryNodes(1, { clock: this.clock });
  #count = 0;

  /** A client of the node, which is closed with the test. */
  redlock(options: RedlockOptions = {}): Redlock {
    const { clock } = this;
    const nodes = memoryNodes(this.#nodes, { clock });
    const redlock = new Redlock(nodes, { clock, ttl: MAX_TTL, maxTtl: MAX_TTL, quarantine: false, ...options });
    onTestFinished(() => clock.until(redlock.close()));
    return redlock;
  }

  /** An election that is stopped with its test. */
  candidate(name: string, options: Partial<LeaderElectionOptions> = {}): LeaderElection {
    this.#count += 1;
    const own = { name, id: `c${this.#count}`, ...LEASE, cooldown: { initial: 10 } };
    const election = new LeaderElection(this.redlock(), { ...own, ...options });
    onTestFinished(() => this.clock.until(election.stop({ drainTimeout: 0 })));
    return election;
  }

  /** `expect.poll` in virtual time, which passes between two checks. */
  poll<Value>(look: () => Value | Promise<Value>): ReturnType<typeof expect.poll<Value>> {
    const next = async (): Promise<Value> => {
      await this.clock.advance(STEP_MS);
      return await look();
    };
    return expect.poll(next, { interval: 1 });
  }
}
