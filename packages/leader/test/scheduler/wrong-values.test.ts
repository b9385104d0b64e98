/** State on the lock nodes that no scheduler can have written: the leader reports it, and continues. */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { type Clock, Redlock } from "@x/redlock-core";
import { defineScript, protocolOf } from "@x/redlock-core/protocol";
import { memoryNodes, VirtualClock } from "@x/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { VirtualLab } from "../support/virtual-lab.ts";

const TOO_GREAT = "9007199254740993";
const HOUR_MS = 3_600_000;

interface Running {
  readonly scheduler: LeaderScheduler;
  readonly election: LeaderElection;
  readonly errors: string[];
  readonly ticks: () => number;
}

class Lab extends VirtualLab {
  readonly #redis = this.redlock();

  async write(command: string, ...args: readonly string[]): Promise<void> {
    const script = { name: `test-${command}`, lua: `return redis.call('${command}', KEYS[1], unpack(ARGV))` };
    const [key = "", ...rest] = args;
    const own = protocolOf(this.#redis).keys.sideKey("leader:jobs", key);
    await this.clock.until(
      protocolOf(this.#redis).run(defineScript(script.name, script.lua), { keys: [own], args: rest }),
    );
  }

  start(): Running {
    const election = this.candidate("jobs");
    const scheduler = new LeaderScheduler({ election });
    const errors: string[] = [];
    let ticks = 0;
    scheduler.on("error", (error) => void errors.push((error as Error).message));
    scheduler.every("bills", 1_000, () => {
      ticks += 1;
    });
    onTestFinished(() => this.clock.until(scheduler.stop({ drainTimeout: 0 })));
    scheduler.start();
    return { scheduler, election, errors, ticks: () => ticks };
  }
}

describe("a scheduler", () => {
  it.each([
    [":promised", TOO_GREAT, /^node .*: the register of schedules has a value that is ignored: :promised 9007/],
    [":promised", "Infinity", /ignored: :promised Infinity$/],
    [":term", TOO_GREAT, /ignored: :term 9007/],
    [":step", "-1", /ignored: :step -1$/],
    [
      "bills",
      "99999999999999 0 0",
      /"bills" of the register .* "99999999999999 0 0", which is not valid: it is removed/,
    ],
    ["bills", "Infinity NaN 0", /"bills" of the register .* not valid: it is removed$/],
    ["bills", "1e300 0 0", /"bills" of the register .* not valid/],
    ["r:bills@soon", "1", /"r:bills@soon" of the register/],
    ["r:bills@1000", "NaN", /"r:bills@1000" of the register/],
    ["t:x", "now 0 bills", /"t:x" of the register/],
    ["p:bills", `${TOO_GREAT} 1 0`, /"p:bills" of the register/],
  ])("runs its ticks even if the register has %s = %s, and reports the value", async (field, value, message) => {
    const lab = new Lab();
    await lab.write("HSET", "register", field, value);
    const { errors, ticks } = lab.start();
    await lab.clock.advance(4_000);
    expect(ticks()).toBeGreaterThan(2);
    expect(errors.filter((error) => message.test(error))).toHaveLength(1);
    expect(errors).toHaveLength(1);
  });

  it.each([
    ["t:x", "now 0 bills"],
    ["p:bills", `${TOO_GREAT} 1 0`],
    ["p:bills", "1 7 0"],
  ])("removes %s = %s from the mailbox, and reports it once", async (field, value) => {
    const lab = new Lab();
    await lab.write("HSET", "mailbox", field, value);
    const { errors, ticks } = lab.start();
    await lab.clock.advance(14_000);
    expect(ticks()).toBeGreaterThan(12);
    expect(errors).toEqual([
      `${JSON.stringify(field)} of the mailbox of schedules contains ${JSON.stringify(value)}, which is not valid: it is removed`,
    ]);
  });

  it("can be paused and resumed even if the previous order has an inexact version", async () => {
    const lab = new Lab();
    await lab.write("HSET", "mailbox", "p:bills", `${TOO_GREAT} 0 0`);
    const { scheduler, ticks } = lab.start();
    await lab.clock.advance(4_000);
    expect(ticks()).toBeGreaterThan(1);
    await lab.write("HSET", "mailbox", "p:bills", `${TOO_GREAT} 0 0`);
    await lab.clock.until(scheduler.pause("bills"));
    expect((await lab.clock.until(scheduler.list())).map(({ paused }) => paused)).toEqual([true]);
    await lab.clock.until(scheduler.resume("bills"));
    expect((await lab.clock.until(scheduler.list())).map(({ paused }) => paused)).toEqual([false]);
  });

  it("refuses to pause when no greater version is left", async () => {
    const lab = new Lab();
    const { scheduler, ticks } = lab.start();
    await lab.clock.advance(4_000);
    expect(ticks()).toBeGreaterThan(1);
    await lab.write("HSET", "mailbox", "p:bills", `${Number.MAX_SAFE_INTEGER} 0 0`);
    await expect(lab.clock.until(scheduler.pause("bills"))).rejects.toThrow(
      /^the pause of "bills" has a version that cannot be raised: "9007199254740991 0 0"$/,
    );
  });

  it("reports that a node has promised its schedules to a newer term while it leads", async () => {
    const lab = new Lab();
    await lab.write("HSET", "register", ":promised", "9000000000000000");
    const { election, errors, ticks } = lab.start();
    await lab.clock.advance(8_000);
    expect(errors).toHaveLength(1);
    expect(errors[0]).toMatch(
      /^a lock node has promised the schedules to term 9000000000000000, but term \d+ leads: no tick/,
    );
    expect([ticks(), election.isLeader()]).toEqual([0, true]);
  });

  it.each([
    [300_000, "this process's clock is 300000 ms ahead of the clocks of the lock nodes: ticks run early"],
    [-300_000, "this process's clock is 300000 ms behind the clocks of the lock nodes: ticks run late"],
  ])(
    "reports that its clock is %i ms ahead, and the next leader reports that ticks ran early",
    async (aheadMs, message) => {
      const clock = new VirtualClock();
      const nodes = memoryNodes(1, { clock });
      const start = (offsetMs: number): Running => {
        const own: Clock = {
          monotonicMs: () => clock.monotonicMs(),
          wallMs: () => clock.wallMs() + offsetMs,
          suspendedMs: () => 0,
          schedule: (afterMs, run) => clock.schedule(afterMs, run),
          defer: (run) => clock.defer(run),
        };
        const redlock = new Redlock(memoryNodes(nodes, { clock }), { clock: own, quarantine: false });
        const election = new LeaderElection(redlock, { name: "jobs" });
        const scheduler = new LeaderScheduler({ election });
        const errors: string[] = [];
        let ticks = 0;
        scheduler.on("error", (error) => void errors.push((error as Error).message));
        scheduler.every("bills", 1_000, () => {
          ticks += 1;
        });
        onTestFinished(async () => {
          await clock.until(scheduler.stop({ drainTimeout: 0 }));
          await clock.until(redlock.close());
        });
        scheduler.start();
        return { scheduler, election, errors, ticks: () => ticks };
      };
      const first = start(aheadMs);
      await clock.advance(8_000);
      expect(first.ticks()).toBeGreaterThan(2);
      expect(first.errors).toHaveLength(1);
      expect(first.errors[0]).toContain(message);
      await clock.until(first.scheduler.stop());
      const second = start(0);
      await clock.advance(8_000);
      if (aheadMs < 0) {
        expect(second.ticks()).toBeGreaterThan(2);
        expect(second.errors).toEqual([]);
        return;
      }
      expect(second.ticks()).toBe(0);
      expect(second.errors).toHaveLength(1);
      expect(second.errors[0]).toMatch(
        /^the ticks of "bills" until .*Z were already run or left out, .* clock was ahead/,
      );
    },
  );

  it("lists the history around a damaged line", async () => {
    const lab = new Lab();
    const { scheduler, ticks } = lab.start();
    await lab.clock.advance(4_000);
    expect(ticks()).toBeGreaterThan(2);
    await lab.clock.advance(2_000);
    for (const line of ["{", "1/1/ {", "1/1/ [1]", `1/1/ ["run",${TOO_GREAT},1,1]`, 'x/1/ ["run",1,1,1]']) {
      await lab.write("HSET", "history", '"bills"', `${line}\n`);
      await lab.write("HSET", "newest", '"bills"', `${line}\n`, "{", "line\n");
      await lab.clock.until(scheduler.history("bills"));
      expect((await lab.clock.until(scheduler.list())).map(({ name }) => name)).toEqual(["bills"]);
    }
  });
});

describe("an election", () => {
  it.each([["term"], ["revision"]])("leads even if the record on the nodes has an inexact %s", async (field) => {
    const lab = new Lab();
    await lab.write("HSET", "leader", field, TOO_GREAT);
    const election = lab.candidate("jobs");
    const term = await lab.clock.until(election.campaign());
    await lab.clock.advance(HOUR_MS / 360);
    expect(term.isCurrent()).toBe(true);
    expect((await lab.clock.until(election.leader()))?.term).toBe(term.term);
  });
});
