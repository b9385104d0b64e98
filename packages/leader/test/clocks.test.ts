/** Candidates and terms when clocks jump. */
import { LeaderElection, type TermEndReason } from "@x/leader";
import { type Clock, systemClock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LEASE, type Nodes, startNodes } from "./support/redis.ts";

interface Skewed {
  readonly clock: Clock;
  wallMs: number;
  suspendedMs: number;
}

/** The process's clocks, two of which can be moved. */
function skewed(): Skewed {
  const own: Skewed = {
    wallMs: 0,
    suspendedMs: 0,
    clock: {
      ...systemClock,
      wallMs: () => systemClock.wallMs() + own.wallMs,
      suspendedMs: () => own.suspendedMs,
    },
  };
  return own;
}

describe("candidates", () => {
  it.each([60_000, -60_000])(
    "wait in line in the order of their arrival, even if a clock is %i ms off",
    async (offMs) => {
      await using nodes = await startNodes(1);
      const own = skewed();
      own.wallMs = offMs;
      const name = "line";
      const leader = new LeaderElection(nodes.redlock(), { name, ...LEASE });
      const led = await leader.campaign();
      const clocks = offMs > 0 ? [own.clock, systemClock] : [systemClock, own.clock];
      const elected: number[] = [];
      const candidates = clocks.map((clock) => new LeaderElection(nodes.redlock({ clock }), { name, ...LEASE }));
      const campaigns: Promise<void>[] = [];
      for (const [index, candidate] of candidates.entries()) {
        campaigns.push(
          candidate.campaign().then(async (term) => {
            elected.push(index);
            await term.resign();
          }),
        );
        await expect
          .poll(async () => (await nodes.redlock().inspect(`leader:${name}`)).nodes.map(({ waiters }) => waiters))
          .toEqual([index + 1]);
      }
      await led.resign();
      await Promise.all(campaigns);
      expect(elected).toEqual([0, 1]);
      await Promise.all([leader, ...candidates].map((candidate) => candidate.stop()));
    },
  );

  it("do not take the turn of an earlier candidate, even if their clock is behind", async () => {
    await using nodes = await startNodes(1);
    const own = skewed();
    own.wallMs = -60_000;
    const redlock = nodes.redlock({ clock: own.clock });
    const election = new LeaderElection(redlock, { name: "turn", ...LEASE });
    const turn = `reserved:${(Date.now() - 30_000) * 1_000}:x:redlock:other#1`;
    await nodes.servers[0]?.call("SET", protocolOf(redlock).keys.lockKey("leader:turn"), turn, "PX", "60000");
    const once = new LeaderElection(nodes.redlock({ clock: own.clock }), { name: "turn", ...LEASE });
    expect(await once.tryCampaign()).toBeUndefined();
    const campaigning = election.campaign().catch((error: unknown) => error);
    await expect
      .poll(async () => (await redlock.inspect("leader:turn")).nodes.map(({ waiters }) => waiters))
      .toEqual([1]);
    await Promise.all([once.stop(), election.stop()]);
    expect(await campaigning).toMatchObject({ code: "ELECTION_STOPPED" });
  });
});

describe("a term", () => {
  let nodes: Nodes;
  beforeAll(async () => {
    nodes = await startNodes(1);
  });
  afterAll(async () => {
    await nodes[Symbol.asyncDispose]();
  });

  function candidate(name: string, own: Skewed): { election: LeaderElection; reasons: TermEndReason[] } {
    const election = new LeaderElection(nodes.redlock({ clock: own.clock }), {
      name,
      ...LEASE,
    });
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    return { election, reasons };
  }

  it.each([
    ["wallMs", "clock-jumped"],
    ["suspendedMs", "suspended"],
  ] as const)(
    "ends immediately when %s shows that its deadline has passed, before any timer has run: %s",
    async (which, reason) => {
      const own = skewed();
      const { election, reasons } = candidate(`slept-${which}`, own);
      const term = await election.campaign();
      expect(() => term.assertCurrent()).not.toThrow();
      own[which] += LEASE.renewDeadline;
      expect(() => term.assertCurrent()).toThrow(`is over (${reason})`);
      expect([reasons, term.signal.aborted, election.isLeader(), term.remaining()]).toEqual([[reason], true, false, 0]);
      await election.stop();
    },
  );

  it.each([
    ["wallMs", "clock-jumped"],
    ["suspendedMs", "suspended"],
  ] as const)("aborts its signal soon after a jump of %s, long before the next renewal: %s", async (which, reason) => {
    const own = skewed();
    const longer = { leaseDuration: 60_000, renewDeadline: 50_000, retryPeriod: 20_000 };
    const election = new LeaderElection(nodes.redlock({ clock: own.clock, maxTtl: 60_000 }), {
      name: `long-${which}`,
      ...longer,
    });
    const { signal } = await election.campaign();
    own[which] += longer.renewDeadline;
    await expect.poll(() => signal.aborted, { timeout: 10_000 }).toBe(true);
    expect(signal.reason).toMatchObject({ reason });
    await election.stop();
  });

  it("is not reported as ended if it had expired before the election was reported", async () => {
    const own = skewed();
    const redlock = nodes.redlock({ clock: own.clock });
    const election = new LeaderElection(redlock, { name: "late", ...LEASE });
    const told: string[] = [];
    election.on("ended", () => told.push("ended"));
    election.on("elected", () => told.push("elected"));
    redlock.on("acquired", () => (own.wallMs += LEASE.renewDeadline));
    expect(await election.tryCampaign()).toBeUndefined();
    expect(told).toEqual([]);
    await election.stop();
  });

  it("survives a wall clock that is set back by an hour", async () => {
    const own = skewed();
    const { election, reasons } = candidate("back", own);
    const term = await election.campaign();
    own.wallMs -= 3_600_000;
    let renewals = 0;
    election.on("renewed", () => (renewals += 1));
    await expect.poll(() => renewals, { timeout: 10_000 }).toBeGreaterThan(8);
    expect([reasons, term.isCurrent()]).toEqual([[], true]);
    await term.resign();
    await election.stop();
  });

  it("is lost when a wall clock is set forward by an hour, and the next term is higher", async () => {
    const own = skewed();
    const { election, reasons } = candidate("forward", own);
    const terms: number[] = [];
    const running = election.run(async (term) => {
      terms.push(term.term);
      if (!term.signal.aborted)
        await new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
    });
    await expect.poll(() => terms.length).toBe(1);
    own.wallMs += 3_600_000;
    await expect.poll(() => terms.length, { timeout: 15_000 }).toBe(2);
    expect(reasons).toEqual(["clock-jumped"]);
    expect(terms[1]).toBeGreaterThan(terms[0] ?? 0);
    await election.stop();
    await running;
  });

  it("leaves the lock to expire under a running task when a clock has jumped", async () => {
    const own = skewed();
    const { election } = candidate("jumped", own);
    let end: () => void = () => undefined;
    const running = election.run(() => new Promise<void>((resolve) => (end = resolve)), { onTaskEnd: "stop" });
    await expect.poll(() => election.isLeader()).toBe(true);
    const observer = nodes.redlock();
    own.wallMs += 3_600_000;
    expect(election.isLeader()).toBe(false);
    const [node] = (await observer.inspect("leader:jumped")).nodes;
    expect(node).toMatchObject({ state: "held" });
    end();
    await election.stop();
    await running;
  });

  it("ends at its deadline if renewals only fail, even if the lock would still be valid", async () => {
    const own = skewed();
    const { election, reasons } = candidate("deadline", own);
    const term = await election.campaign();
    const [server] = nodes.servers;
    const failures: number[] = [];
    election.on("renewFailed", ({ remainingMs }) => failures.push(remainingMs));
    server?.freeze();
    await expect.poll(() => reasons, { timeout: 10_000 }).toEqual(["renew-deadline"]);
    server?.thaw();
    expect(term.isCurrent()).toBe(false);
    expect(failures.every((remaining) => remaining <= LEASE.renewDeadline)).toBe(true);
    await election.stop();
  });
});
