/** The start and the end of a term, and the candidate of the next term. */
import {
  ElectionStoppedError,
  LeaderElection,
  type LeaderElectionOptions,
  LeadershipLostError,
  type TermEndReason,
} from "@x/leader";
import { type Clock, Redlock } from "@x/redlock-core";
import { defineScript, protocolOf } from "@x/redlock-core/protocol";
import { memoryNodes, VirtualClock } from "@x/testing";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { untilAborted } from "./support/lab.ts";
import { VirtualLab } from "./support/virtual-lab.ts";

const ENDED = defineScript("ended", "return redis.call('HGET', KEYS[1], 'ended')");

let lab: VirtualLab;
beforeEach(() => {
  lab = new VirtualLab();
});

/** A lease that no test waits out. */
const LONG_LEASE = { leaseDuration: 60_000, renewDeadline: 40_000, retryPeriod: 200 } as const;

interface Jumping {
  readonly clock: Clock;
  jumpedMs: number;
}

/** A process's clocks, of which the wall clock can jump. */
function jumping(clock: Clock): Jumping {
  const own: Jumping = {
    jumpedMs: 0,
    clock: {
      monotonicMs: () => clock.monotonicMs(),
      wallMs: () => clock.wallMs() + own.jumpedMs,
      suspendedMs: (nowMs) => clock.suspendedMs(nowMs),
      schedule: (...timer) => clock.schedule(...timer),
      defer: (run) => clock.defer(run),
    },
  };
  return own;
}

/** Creates a candidate with its own clock. The candidate is stopped with the test. */
function longLeased(clock: Clock, name: string, options: Partial<LeaderElectionOptions> = {}): LeaderElection {
  const redlock = lab.redlock({ clock, ttl: LONG_LEASE.leaseDuration, maxTtl: LONG_LEASE.leaseDuration });
  const election = new LeaderElection(redlock, { name, ...LONG_LEASE, ...options });
  onTestFinished(() => lab.clock.until(election.stop({ drainTimeout: 0 })));
  return election;
}

describe("an election", () => {
  it("refuses calls of a term once the term is over", async () => {
    const election = lab.candidate("over");
    const term = await lab.clock.until(election.campaign());
    expect(() => term.assertCurrent()).not.toThrow();
    await lab.clock.until(term.resign());
    expect(() => term.assertCurrent()).toThrow(LeadershipLostError);
    expect(() => term.assertCurrent()).toThrow(/term \d+ is over \(resigned\)/);
    expect([term.isCurrent(), term.remaining(), await term.verify(), term.signal.aborted]).toEqual([
      false,
      0,
      false,
      true,
    ]);
    const again = await lab.clock.until(election.campaign());
    await expect(again.resign({ cooldown: -1 })).rejects.toThrow(RangeError);
    await expect(term.proclaim("late")).rejects.toMatchObject({ code: "LEADERSHIP_LOST", reason: "resigned" });
    await lab.clock.until(term.resign());
  });

  it("reports a leader's proclaimed value to observers", async () => {
    const election = lab.candidate("value", { value: "one" });
    const observer = lab.candidate("value");
    const values: (string | undefined)[] = [];
    observer.on("leaderChanged", (info) => values.push(info?.value));
    await lab.poll(() => values.length).toBe(1);
    const term = await lab.clock.until(election.campaign());
    await lab.poll(() => values.at(-1)).toBe("one");
    await lab.clock.until(term.proclaim("two"));
    await lab.poll(() => values.at(-1)).toBe("two");
    await lab.clock.until(term.resign());
    await lab.poll(() => values.at(-1)).toBe(undefined);
    expect(values).toEqual([undefined, "one", "two", undefined]);
  });

  it("ends a term on request, and hands it to the candidate that has waited longest", async () => {
    const first = lab.candidate("request", { id: "first", cooldown: { initial: 2_000 } });
    const others = ["second", "third"].map((id) => lab.candidate("request", { id, cooldown: { initial: 2_000 } }));
    const reasons: TermEndReason[] = [];
    first.on("ended", ({ reason }) => reasons.push(reason));
    const runs = [first.run(untilAborted)];
    await lab.poll(() => first.isLeader()).toBe(true);
    for (const other of others) {
      runs.push(other.run(untilAborted));
      await lab.poll(() => other.state).toBe("follower");
    }
    const operator = lab.candidate("request", { id: "operator" });
    expect(await operator.requestResign()).toBe(true);
    await lab.poll(() => others[0]?.isLeader()).toBe(true);
    expect(reasons).toEqual(["resign-requested"]);
    await lab.clock.until(Promise.all([first, ...others].map((election) => election.stop())));
    await lab.clock.until(Promise.all(runs));
    expect(await operator.requestResign()).toBe(false);
  });

  it("hands the leadership to the eligible candidate, past candidates that have waited longer", async () => {
    let preferred: string | null = null;
    const all = ["one", "two", "three"].map((id) =>
      lab.candidate("preferring", {
        id,
        cooldown: { initial: 1 },
        eligible: () => preferred === null || preferred === id,
      }),
    );
    const runs: Promise<void>[] = [];
    for (const each of all) {
      runs.push(each.run(untilAborted));
      await lab.poll(() => each.state).toBe(each === all[0] ? "leader" : "follower");
    }
    const leaders = (): readonly string[] => all.filter((each) => each.isLeader()).map(({ id }) => id);
    preferred = "three";
    await lab.poll(leaders).toEqual(["three"]);
    preferred = null;
    await lab.clock.until(Promise.resolve(all[2]?.stop()));
    await lab.poll(leaders).toHaveLength(1);
    await lab.clock.until(Promise.all(all.map((each) => each.stop())));
    await lab.clock.until(Promise.all(runs));
  });

  it("ends a term when its process is no longer eligible, and campaigns again only when it is", async () => {
    let isEligible = true;
    const election = lab.candidate("eligible", { eligible: () => isEligible });
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    const running = election.run(untilAborted);
    await lab.poll(() => election.isLeader()).toBe(true);
    isEligible = false;
    await lab.poll(() => reasons).toEqual(["ineligible"]);
    await lab.clock.advance(400);
    expect(election.isLeader()).toBe(false);
    isEligible = true;
    await lab.poll(() => election.isLeader()).toBe(true);
    await lab.clock.until(election.stop());
    await lab.clock.until(running);
  });

  it("begins a term after lockDelay if the previous term did not end cleanly, and immediately if it did", async () => {
    const options = { lockDelay: 2_500 };
    const first = lab.candidate("delay", options);
    const second = lab.candidate("delay", options);
    const firstTerm = await lab.clock.until(first.campaign());
    const waiting = second.campaign();
    await lab.clock.until(firstTerm.resign());
    const secondTerm = await lab.clock.until(waiting);
    expect(secondTerm.acquiredAt.getTime()).toBeGreaterThanOrEqual(firstTerm.acquiredAt.getTime());
    await lab.clock.until(lab.redlock().forceRelease("leader:delay"));
    await lab.poll(() => second.isLeader()).toBe(false);
    const third = lab.candidate("delay", options);
    const from = lab.clock.monotonicMs();
    await using thirdTerm = await lab.clock.until(third.campaign());
    expect(lab.clock.monotonicMs() - from).toBeGreaterThanOrEqual(options.lockDelay - 5);
    expect(thirdTerm.isCurrent()).toBe(true);
  });

  it("waits out lockDelay even if another winner stopped during the delay", async () => {
    const crashed = lab.candidate("delay-kept");
    await lab.clock.until(crashed.campaign());
    await lab.clock.until(lab.redlock().forceRelease("leader:delay-kept"));
    await lab.poll(() => crashed.isLeader()).toBe(false);
    const second = lab.candidate("delay-kept", { lockDelay: 60_000 });
    const waiting = second.campaign();
    await lab.poll(() => second.state).toBe("candidate");
    const record = protocolOf(lab.redlock());
    const ended = async (): Promise<unknown> =>
      (await record.run(ENDED, { keys: ["{leader:delay-kept}:leader"], args: [] })).map(
        (reply) => reply.ok && reply.value,
      );
    await lab.poll(ended).toEqual(["0"]);
    expect(await second.leader()).toBeNull();
    const third = lab.candidate("delay-kept", { lockDelay: 2_500 });
    await lab.clock.until(Promise.all([second.stop(), expect(waiting).rejects.toThrow(ElectionStoppedError)]));
    const from = lab.clock.monotonicMs();
    await using term = await lab.clock.until(third.campaign());
    expect(lab.clock.monotonicMs() - from).toBeGreaterThanOrEqual(2_500 - 5);
    expect(term.isCurrent()).toBe(true);
  });

  it("releases the lock if its term is over before it led, because no task has run under it", async () => {
    const crashed = lab.candidate("never-led");
    await lab.clock.until(crashed.campaign());
    await lab.clock.until(lab.redlock().forceRelease("leader:never-led"));
    await lab.poll(() => crashed.isLeader()).toBe(false);
    const own = jumping(lab.clock);
    const first = longLeased(own.clock, "never-led", { lockDelay: 30_000 });
    const campaigning = first.campaign().catch((error: unknown) => error);
    await lab.poll(() => first.state).toBe("candidate");
    const second = longLeased(lab.clock, "never-led");
    const waiting = second.campaign();
    await lab.poll(() => second.state).toBe("follower");
    const from = lab.clock.monotonicMs();
    own.jumpedMs = LONG_LEASE.renewDeadline;
    // The question itself ends the term.
    expect(first.health()).not.toHaveProperty("term");
    const term = await lab.clock.until(waiting);
    expect(lab.clock.monotonicMs() - from).toBeLessThan(LONG_LEASE.leaseDuration - LONG_LEASE.renewDeadline);
    await lab.clock.until(first.stop());
    expect(await campaigning).toBeInstanceOf(ElectionStoppedError);
    expect(term.isCurrent()).toBe(true);
    await lab.clock.until(term.resign());
  });

  it("releases a lock that was granted too late for its term", async () => {
    const own = jumping(lab.clock);
    const election = longLeased(own.clock, "late");
    election.redlock.on("acquired", () => {
      own.jumpedMs = LONG_LEASE.renewDeadline;
    });
    expect(await lab.clock.until(election.tryCampaign())).toBeUndefined();
    expect((await lab.clock.until(lab.redlock().inspect("leader:late"))).verdict).toBe("free");
  });

  it("keeps the lock if its term is over before its owner has resigned, because the owner may still work", async () => {
    const own = jumping(lab.clock);
    const election = longLeased(own.clock, "owned");
    const term = await lab.clock.until(election.campaign());
    const stopped = election.stop();
    await lab.poll(() => election.state).toBe("draining");
    own.jumpedMs = LONG_LEASE.renewDeadline;
    expect(term.isCurrent()).toBe(false);
    await lab.clock.until(stopped);
    expect((await lab.clock.until(lab.redlock().inspect("leader:owned"))).verdict).toBe("held");
  });

  it("is not ended by maxHold of its Redlock", async () => {
    // A lease that outlasts every stall of a loaded machine, so that only maxHold could end it.
    const redlock = lab.redlock({ maxHold: 200, ttl: 60_000, maxTtl: 60_000 });
    await using election = new LeaderElection(redlock, { name: "max-hold", ...LONG_LEASE });
    const term = await lab.clock.until(election.campaign());
    await lab.clock.advance(500);
    expect(term.isCurrent()).toBe(true);
    await lab.clock.until(term.resign());
    await using again = await lab.clock.until(election.tryCampaign());
    await lab.clock.advance(500);
    expect(again?.isCurrent()).toBe(true);
  });

  it("survives a renewal that repaired one node while another hung, because the next begins a period later", async () => {
    const clock = new VirtualClock();
    const nodes = memoryNodes(3, { clock });
    const redlock = new Redlock(nodes, { clock, ttl: 15_000, nodeTimeout: 3_000, quarantine: false });
    onTestFinished(() => clock.until(redlock.close()));
    const durations = { leaseDuration: 15_000, renewDeadline: 8_500, retryPeriod: 4_000 };
    const election = new LeaderElection(redlock, { name: "repaired", ...durations });
    const term = await clock.until(election.campaign());
    const told: string[] = [];
    election.on("renewed", () => told.push("renewed"));
    election.on("renewFailed", () => told.push("failed"));
    nodes[0]?.flush();
    nodes[1]?.partition(7_100);
    await clock.advance(8_400);
    expect([told, term.isCurrent()]).toEqual([["failed", "renewed"], true]);
    await clock.until(term.resign());
  });
});
