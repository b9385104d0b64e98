/** An election whose Redlock is closed. */

import { LeaderElection, type LeaderTerm, type TermEndReason } from "@x/leader";
import { protocolOf } from "@x/redlock-core/protocol";
import { describe, expect, it } from "vitest";
import { pause, untilAborted, useLab } from "./support/lab.ts";
import { connect, LEASE, MAX_TTL } from "./support/redis.ts";

const lab = useLab();

describe("an election whose Redlock is closed", () => {
  it("ends the term immediately, before the lock", async () => {
    const redlock = connect(lab.nodes.paths);
    const election = new LeaderElection(redlock, { name: "closed", ...LEASE });
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    let term: LeaderTerm | undefined;
    const running = election.run((own) => {
      term = own;
      return untilAborted(own);
    });
    await expect.poll(() => election.isLeader()).toBe(true);
    const closing = redlock.close();
    expect([election.isLeader(), term?.isCurrent(), reasons]).toEqual([false, false, ["closed"]]);
    expect(term?.signal.reason).toMatchObject({ code: "LEADERSHIP_LOST", reason: "closed" });
    await expect(running).rejects.toMatchObject({ code: "REDLOCK_CLOSED" });
    await closing;
    await election.stop();
  });

  it("leaves the lease to expire, since the task may still run", async () => {
    const redlock = connect(lab.nodes.paths);
    const election = new LeaderElection(redlock, { name: "closed-leaves", ...LEASE });
    let renewedMs = Number.POSITIVE_INFINITY;
    election.on("renewed", ({ tookMs }) => {
      renewedMs = performance.now() - tookMs;
    });
    let end: () => void = () => undefined;
    const running = election.run(() => new Promise<void>((resolve) => (end = resolve)));
    await expect.poll(() => renewedMs).toBeLessThan(Number.POSITIVE_INFINITY);
    const next = lab.candidate("closed-leaves");
    const waiting = next.campaign();
    await expect.poll(() => next.state).toBe("follower");
    await redlock.close();
    await using following = await waiting;
    expect(following.isCurrent()).toBe(true);
    expect(performance.now() - renewedMs).toBeGreaterThanOrEqual(LEASE.leaseDuration - 1);
    end();
    await expect(running).rejects.toMatchObject({ code: "REDLOCK_CLOSED" });
    await election.stop();
  });

  it("releases a lock with which it has not begun to lead", async () => {
    const crashed = lab.candidate("closed-early");
    await crashed.campaign();
    await lab.nodes.redlock().forceRelease("leader:closed-early");
    const redlock = connect(lab.nodes.paths);
    const election = new LeaderElection(redlock, { name: "closed-early", ...LEASE, lockDelay: 600_000 });
    const end = election.campaign().catch((error: unknown) => error);
    await expect.poll(() => election.state).toBe("candidate");
    const held = (): Promise<unknown> | undefined =>
      lab.nodes.servers[0]?.call("EXISTS", protocolOf(redlock).keys.lockKey("leader:closed-early"));
    expect(await held()).toBe(1);
    await redlock.close();
    expect(await end).toMatchObject({ code: "REDLOCK_CLOSED" });
    expect(await held()).toBe(0);
    await election.stop();
  });

  it("ends a campaign that can no longer succeed", async () => {
    const redlock = connect(lab.nodes.paths);
    const failing = new LeaderElection(redlock, {
      name: "closed-a",
      ...LEASE,
      cooldown: { initial: 600_000, max: 600_000 },
    });
    const refused = new LeaderElection(redlock, { name: "closed-b", ...LEASE, eligible: () => false });
    const busy = new LeaderElection(redlock, { name: "closed-c", ...LEASE });
    let end: () => void = () => undefined;
    const over = new AbortController();
    await busy.run(
      () => {
        over.abort();
        return new Promise<void>((resolve) => (end = resolve));
      },
      { drainTimeout: 0, signal: over.signal },
    );
    await expect.poll(() => busy.state, { timeout: 10_000 }).toBe("idle");
    const ends = [
      failing.run(() => Promise.reject(new Error("broken"))),
      refused.campaign(),
      busy.run(() => undefined),
    ].map((each) =>
      each.then(
        () => "resolved",
        (error: { code: string }) => error.code,
      ),
    );
    await expect.poll(() => failing.state).toBe("cooldown");
    await redlock.close();
    expect(await Promise.all(ends)).toEqual(["REDLOCK_CLOSED", "REDLOCK_CLOSED", "REDLOCK_CLOSED"]);
    await expect(refused.tryCampaign()).rejects.toMatchObject({ code: "REDLOCK_CLOSED" });
    end();
    await Promise.all([failing, refused, busy].map((election) => election.stop()));
  });

  it("stops its observation without reporting an error", async () => {
    const redlock = connect(lab.nodes.paths);
    await using election = new LeaderElection(redlock, { name: "observed", ...LEASE, leaseDuration: MAX_TTL });
    const errors: unknown[] = [];
    election.on("error", (error) => errors.push(error));
    election.on("leaderChanged", () => undefined);
    const leaders = election.observe();
    expect(await leaders.next()).toEqual({ done: false, value: null });
    const next = leaders.next();
    await redlock.close();
    expect(await next).toEqual({ done: true, value: undefined });
    // Longer than an observer pauses between two looks, which is a tenth of the lease.
    await pause(MAX_TTL / 4);
    expect(errors).toEqual([]);
  });
});
