/** How a term begins and ends, and who has the next one. */
import { ElectionStoppedError, LeaderElection, LeadershipLostError, type TermLossReason } from "@x/leader";
import { describe, expect, it } from "vitest";
import { pause, untilAborted, useLab } from "./support/lab.ts";

const lab = useLab();

describe("an election", () => {
  it("refuses what is done under a term once it is over", async () => {
    const election = lab.candidate("over");
    const term = await election.campaign();
    expect(() => term.assertCurrent()).not.toThrow();
    await term.resign();
    expect(() => term.assertCurrent()).toThrow(LeadershipLostError);
    expect(() => term.assertCurrent()).toThrow(/term \d+ is over \(resigned\)/);
    expect([term.isCurrent(), term.remaining(), await term.verify(), term.signal.aborted]).toEqual([
      false,
      0,
      false,
      true,
    ]);
    await expect(election.campaign().then((again) => again.resign({ cooldown: -1 }))).rejects.toThrow(RangeError);
    await expect(term.proclaim("late")).rejects.toMatchObject({ code: "LEADERSHIP_LOST", reason: "resigned" });
    await term.resign();
  });

  it("shows what a leader proclaims to observers", async () => {
    const election = lab.candidate("value", { value: "one" });
    const observer = lab.candidate("value");
    const values: (string | undefined)[] = [];
    observer.on("leaderChange", (info) => values.push(info?.value));
    await expect.poll(() => values.length).toBe(1);
    const term = await election.campaign();
    await expect.poll(() => values.at(-1)).toBe("one");
    await term.proclaim("two");
    await expect.poll(() => values.at(-1)).toBe("two");
    await term.resign();
    await expect.poll(() => values.at(-1)).toBe(undefined);
    expect(values).toEqual([undefined, "one", "two", undefined]);
  });

  it("ends a term on request, and hands it to the candidate that has waited longest", async () => {
    const first = lab.candidate("request", { id: "first", cooldown: { initial: 2_000 } });
    const others = ["second", "third"].map((id) => lab.candidate("request", { id, cooldown: { initial: 2_000 } }));
    const reasons: TermLossReason[] = [];
    first.on("lost", ({ reason }) => reasons.push(reason));
    const runs = [first.run(untilAborted)];
    await expect.poll(() => first.isLeader()).toBe(true);
    for (const other of others) {
      runs.push(other.run(untilAborted));
      await expect.poll(() => other.state).toBe("follower");
    }
    const operator = lab.candidate("request", { id: "operator" });
    expect(await operator.requestResign()).toBe(true);
    await expect.poll(() => others[0]?.isLeader(), { timeout: 10_000 }).toBe(true);
    expect(reasons).toEqual(["resign-requested"]);
    await Promise.all([first, ...others].map((election) => election.stop()));
    await Promise.all(runs);
    expect(await operator.requestResign()).toBe(false);
  });

  it("hands the leadership to the one that is eligible, past those that have waited longer", async () => {
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
      await expect.poll(() => each.state).toBe(each === all[0] ? "leader" : "follower");
    }
    const leaders = (): readonly string[] => all.filter((each) => each.isLeader()).map(({ id }) => id);
    preferred = "three";
    await expect.poll(leaders, { timeout: 10_000 }).toEqual(["three"]);
    preferred = null;
    await all[2]?.stop();
    await expect.poll(leaders, { timeout: 10_000 }).toHaveLength(1);
    await Promise.all(all.map((each) => each.stop()));
    await Promise.all(runs);
  });

  it("ends a term when its process is no longer eligible, and seeks none before it is again", async () => {
    let isEligible = true;
    const election = lab.candidate("eligible", { eligible: () => isEligible });
    const reasons: TermLossReason[] = [];
    election.on("lost", ({ reason }) => reasons.push(reason));
    const running = election.run(untilAborted);
    await expect.poll(() => election.isLeader()).toBe(true);
    isEligible = false;
    await expect.poll(() => reasons).toEqual(["ineligible"]);
    await pause(400);
    expect(election.isLeader()).toBe(false);
    isEligible = true;
    await expect.poll(() => election.isLeader(), { timeout: 10_000 }).toBe(true);
    await election.stop();
    await running;
  });

  it("begins a term after lockDelay when the one before did not end cleanly, and at once when it did", async () => {
    const options = { lockDelay: 2_500 };
    const first = lab.candidate("delay", options);
    const second = lab.candidate("delay", options);
    const firstTerm = await first.campaign();
    const waiting = second.campaign();
    await firstTerm.resign();
    const secondTerm = await waiting;
    expect(secondTerm.acquiredAt.getTime()).toBeGreaterThanOrEqual(firstTerm.acquiredAt.getTime());
    await lab.nodes.redlock().forceRelease("leader:delay");
    await expect.poll(() => second.isLeader(), { timeout: 10_000 }).toBe(false);
    const third = lab.candidate("delay", options);
    const from = performance.now();
    await using thirdTerm = await third.campaign();
    expect(performance.now() - from).toBeGreaterThanOrEqual(options.lockDelay - 5);
    expect(thirdTerm.isCurrent()).toBe(true);
  });

  it("waits out lockDelay though another winner stopped while it did", async () => {
    const crashed = lab.candidate("delay-kept");
    await crashed.campaign();
    await lab.nodes.redlock().forceRelease("leader:delay-kept");
    await expect.poll(() => crashed.isLeader(), { timeout: 10_000 }).toBe(false);
    const second = lab.candidate("delay-kept", { lockDelay: 60_000 });
    const waiting = second.campaign();
    await expect.poll(() => second.state, { timeout: 10_000 }).toBe("candidate");
    await expect.poll(() => lab.nodes.servers[0]?.call("HGET", "{leader:delay-kept}:leader", "ended")).toBe("0");
    expect(await second.leader()).toBeNull();
    const third = lab.candidate("delay-kept", { lockDelay: 2_500 });
    await Promise.all([second.stop(), expect(waiting).rejects.toThrow(ElectionStoppedError)]);
    const from = performance.now();
    await using term = await third.campaign();
    expect(performance.now() - from).toBeGreaterThanOrEqual(2_500 - 5);
    expect(term.isCurrent()).toBe(true);
  });

  it("is not ended by maxHold of its Redlock", async () => {
    // A lease that no stall of a loaded machine outlasts: nothing but maxHold could end it.
    const lease = { leaseDuration: 60_000, renewDeadline: 40_000, retryPeriod: 200 };
    const redlock = lab.nodes.redlock({ maxHold: 200, ttl: 60_000, maxTtl: 60_000 });
    await using election = new LeaderElection(redlock, { name: "max-hold", ...lease });
    const term = await election.campaign();
    await pause(500);
    expect(term.isCurrent()).toBe(true);
    await term.resign();
    await using again = await election.tryCampaign();
    await pause(500);
    expect(again?.isCurrent()).toBe(true);
  });
});
