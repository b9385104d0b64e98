/** How `run()` treats its task: its start, its time to drain, and the leadership meanwhile. */
import { ElectionBusyError, LeaderElection, LeadershipLostError, type LeaderTerm, type TermEndReason } from "@x/leader";
import { beforeEach, describe, expect, it } from "vitest";
import { untilAborted } from "./support/lab.ts";
import { LEASE } from "./support/redis.ts";
import { VirtualLab } from "./support/virtual-lab.ts";

let lab: VirtualLab;
beforeEach(() => {
  lab = new VirtualLab();
});

describe("run()", () => {
  it("waits longer each time before it leads again after the task has rejected", async () => {
    const election = lab.candidate("poison", { cooldown: { initial: 50, max: 100_000 }, jitter: 0 });
    const startedAt: number[] = [];
    const errors: unknown[] = [];
    election.on("taskFailed", ({ error }) => errors.push(error));
    const poison = new Error("poison");
    const running = election.run(() => {
      startedAt.push(lab.clock.monotonicMs());
      throw poison;
    });
    await lab.poll(() => startedAt.length).toBe(5);
    const gaps = startedAt.slice(1).map((at, index) => at - (startedAt[index] ?? 0));
    expect(gaps.map((gap, index) => gap >= 50 * 2 ** index - 5)).toEqual([true, true, true, true]);
    expect(new Set(errors)).toEqual(new Set([poison]));
    await lab.clock.until(election.stop());
    await lab.clock.until(running);
  });

  it("restarts a task that rejected in the same term, with onTaskError restart", async () => {
    const election = lab.candidate("restart");
    const terms: number[] = [];
    const running = election.run(
      async (term) => {
        terms.push(term.term);
        if (terms.length < 3) throw new Error("again");
        await untilAborted(term);
      },
      { onTaskError: "restart" },
    );
    await lab.poll(() => terms.length).toBe(3);
    expect(new Set(terms).size).toBe(1);
    await lab.clock.until(election.stop());
    await lab.clock.until(running);
  });

  it("holds the leadership or ends the run when the task has ended, as onTaskEnd says", async () => {
    const held = lab.candidate("hold");
    let calls = 0;
    const running = held.run(() => void (calls += 1), { onTaskEnd: "hold" });
    await lab.poll(() => calls).toBe(1);
    await lab.clock.advance(LEASE.leaseDuration + 200);
    expect([calls, held.isLeader()]).toEqual([1, true]);
    await lab.clock.until(held.stop());
    await lab.clock.until(running);

    const once = lab.candidate("once");
    await lab.clock.until(once.run(() => void (calls += 1), { onTaskEnd: "stop" }));
    expect([calls, once.state, await once.leader()]).toEqual([2, "idle", null]);
  });

  it("begins no other term while a task outlives its own term", async () => {
    const election = lab.candidate("overrun");
    const events: string[] = [];
    election.on("ended", ({ reason }) => events.push(`ended: ${reason}`));
    election.on("overrun", ({ overrunMs }) => events.push(overrunMs === 0 ? "overrun" : "overran"));
    let running = 0;
    let most = 0;
    let terms = 0;
    let end: () => void = () => undefined;
    const runs = election.run(async (term) => {
      terms += 1;
      running += 1;
      most = Math.max(most, running);
      if (terms === 1) await new Promise<void>((resolve) => (end = resolve));
      else await untilAborted(term);
      running -= 1;
    });
    await lab.poll(() => terms).toBe(1);
    await lab.clock.until(lab.redlock().forceRelease("leader:overrun"));
    await lab.poll(() => events).toEqual(["ended: forced", "overrun"]);
    await lab.clock.advance(300);
    expect(election.health()).toMatchObject({ healthy: false, running: true });
    expect(election.health({ maxTolerableExpiredLease: 60_000 }).healthy).toBe(true);
    expect(terms).toBe(1);
    end();
    await lab.poll(() => terms).toBe(2);
    expect([most, events.at(-1), election.health().healthy]).toEqual([1, "overran", true]);
    await lab.clock.until(election.stop());
    await lab.clock.until(runs);
  });

  it("lets another candidate lead only when the lease has expired, if the task ignores its signal", async () => {
    const stubborn = lab.candidate("stubborn");
    const next = lab.candidate("stubborn");
    const events: string[] = [];
    for (const name of ["drainTimedOut", "overrun"] as const) stubborn.on(name, () => events.push(name));
    let end: () => void = () => undefined;
    const runs = stubborn.run(() => new Promise<void>((resolve) => (end = resolve)), { drainTimeout: 100 });
    await lab.poll(() => stubborn.isLeader()).toBe(true);
    const waiting = next.campaign();
    await lab.poll(() => next.state).toBe("follower");
    await lab.clock.until(stubborn.stop());
    await lab.clock.until(runs);
    expect(events).toEqual(["drainTimedOut"]);
    expect(next.isLeader()).toBe(false);
    await using term = await lab.clock.until(waiting);
    expect(term.isCurrent()).toBe(true);
    await lab.poll(() => events).toEqual(["drainTimedOut", "overrun"]);
    end();
  });

  it("keeps the lock of a task that outlasts stop() until its lease expires, even if the Redlock is closed", async () => {
    const redlock = lab.redlock();
    const stubborn = new LeaderElection(redlock, { name: "closed-under", ...LEASE });
    const next = lab.candidate("closed-under");
    let term: LeaderTerm | undefined;
    let end: () => void = () => undefined;
    const runs = stubborn.run((own) => {
      term = own;
      return new Promise<void>((resolve) => (end = resolve));
    });
    await lab.poll(() => stubborn.isLeader()).toBe(true);
    const waiting = next.campaign();
    await lab.poll(() => next.state).toBe("follower");
    await lab.clock.until(stubborn.stop({ drainTimeout: 50 }));
    await lab.clock.until(runs);
    await lab.clock.until(redlock.close());
    expect([next.isLeader(), term?.isCurrent()]).toEqual([false, true]);
    await using following = await lab.clock.until(waiting);
    expect([following.isCurrent(), term?.isCurrent()]).toEqual([true, false]);
    end();
  });

  it("does not restart a task that ignores a request to resign, even if its term has ended", async () => {
    const election = lab.candidate("ignores", { cooldown: { initial: 0 } });
    let begun = 0;
    let end: () => void = () => undefined;
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    const runs = election.run(
      async (term) => {
        begun += 1;
        if (begun === 1) await new Promise<void>((resolve) => (end = resolve));
        else await untilAborted(term);
      },
      { drainTimeout: 50 },
    );
    await lab.poll(() => begun).toBe(1);
    await lab.clock.until(election.requestResign());
    await lab.poll(() => reasons).toEqual(["renew-deadline"]);
    await lab.clock.advance(LEASE.leaseDuration);
    expect([begun, election.state]).toEqual([1, "idle"]);
    end();
    await lab.poll(() => begun).toBe(2);
    await lab.clock.until(election.stop());
    await lab.clock.until(runs);
  });

  it("starts the next run's task only when the task of the previous run has ended", async () => {
    const election = lab.candidate("two-runs");
    const controller = new AbortController();
    const ends: (() => void)[] = [];
    const task = (): Promise<void> => new Promise((resolve) => void ends.push(resolve));
    const first = election.run(task, { signal: controller.signal, drainTimeout: 50 });
    await lab.poll(() => ends.length).toBe(1);
    controller.abort();
    await lab.clock.until(first);
    await lab.poll(() => election.state).toBe("idle");
    const second = election.run(task, { drainTimeout: 50 });
    await lab.clock.advance(500);
    expect([ends.length, election.state, election.health()]).toMatchObject([
      1,
      "idle",
      { running: true, healthy: false },
    ]);
    ends[0]?.();
    await lab.poll(() => ends.length).toBe(2);
    await lab.clock.until(election.stop());
    await lab.clock.until(second);
    ends[1]?.();
  });

  it("stops a run that waits for the task of the previous run", async () => {
    const election = lab.candidate("two-runs-stopped");
    const controller = new AbortController();
    let end: () => void = () => undefined;
    const first = election.run(() => new Promise<void>((resolve) => (end = resolve)), {
      signal: controller.signal,
      drainTimeout: 0,
    });
    await lab.poll(() => election.isLeader()).toBe(true);
    controller.abort();
    await lab.clock.until(first);
    await lab.poll(() => election.state).toBe("idle");
    const second = election.run(() => undefined);
    await lab.clock.until(election.stop());
    await lab.clock.until(second);
    end();
  });

  it("leads again after a task that ended late, but before its lease expired", async () => {
    const election = lab.candidate("late", { cooldown: { initial: 0 } });
    const terms: LeaderTerm[] = [];
    const runs = election.run(
      async (term) => {
        terms.push(term);
        await untilAborted(term);
        if (terms.length === 1) await lab.clock.sleep(300);
      },
      { drainTimeout: 50 },
    );
    await lab.poll(() => election.isLeader()).toBe(true);
    await lab.clock.until(election.requestResign());
    await lab.poll(() => terms.length).toBe(2);
    expect([election.state, election.isLeader(), election.current?.term, election.health().term]).toEqual([
      "leader",
      true,
      terms[1]?.term,
      terms[1]?.term,
    ]);
    await lab.clock.advance(LEASE.renewDeadline);
    expect([election.state, terms[1]?.isCurrent()]).toEqual(["leader", true]);
    await lab.clock.until(election.stop());
    await lab.clock.until(runs);
  });

  it("keeps the lock of a task that resigned until the task has ended", async () => {
    const election = lab.candidate("resigns", { cooldown: { initial: 10_000 } });
    const next = lab.candidate("resigns");
    const held: boolean[] = [];
    const runs = election.run(async (term) => {
      await term.resign({ cooldown: 0 });
      held.push(term.signal.aborted, await term.verify());
      await lab.clock.sleep(200);
      held.push(await term.verify());
    });
    await lab.poll(() => held.length).toBeGreaterThanOrEqual(3);
    expect(held.slice(0, 3)).toEqual([true, true, true]);
    await lab.poll(() => held.length).toBeGreaterThan(3);
    await lab.clock.until(election.stop());
    await lab.clock.until(runs);
    await using term = await lab.clock.until(next.campaign());
    expect(term.isCurrent()).toBe(true);
  });

  it.each<readonly [string, (election: LeaderElection) => unknown]>([
    ["resigns", (election: LeaderElection) => election.current?.resign({ cooldown: 0 })],
    ["is stopped", (election: LeaderElection) => void election.stop({ drainTimeout: 60_000 })],
  ])("keeps the lock while the task drains, for several leases after it %s", async (how, endTerm) => {
    const [election, next] = [lab.candidate(`drains: ${how}`), lab.candidate(`drains: ${how}`)];
    const held: boolean[] = [];
    const led: string[] = [];
    let hasDrained = false;
    const runs = election.run(
      async (term) => {
        if (hasDrained) return;
        await untilAborted(term);
        const endMs = lab.clock.monotonicMs() + 3 * LEASE.leaseDuration;
        while (lab.clock.monotonicMs() < endMs) {
          held.push(term.isCurrent());
          await lab.clock.sleep(50);
        }
        held.push(await term.verify());
        hasDrained = true;
      },
      { drainTimeout: 60_000 },
    );
    await lab.poll(() => election.isLeader()).toBe(true);
    const nextRuns = next.run(async (term) => {
      led.push(hasDrained ? "after" : "meanwhile");
      await untilAborted(term);
    });
    await lab.poll(() => next.state).toBe("follower");
    await endTerm(election);
    await lab.poll(() => led[0]).toBe("after");
    expect(new Set(held)).toEqual(new Set([true]));
    await lab.clock.until(Promise.all([election.stop(), next.stop()]));
    await lab.clock.until(Promise.all([runs, nextRuns]));
  });

  it("hands over when a task that stops its own election has ended", async () => {
    const election = lab.candidate("stops-itself");
    const next = lab.candidate("stops-itself");
    const events: string[] = [];
    election.on("drainTimedOut", () => events.push("drainTimedOut"));
    election.on("ended", ({ reason }) => events.push(reason));
    await lab.clock.until(election.run(() => void election.stop()));
    await using term = await lab.clock.until(next.campaign());
    expect([term.isCurrent(), events]).toEqual([true, ["stopping"]]);
  });

  it("starts no task in a term that was asked to end before", async () => {
    const election = lab.candidate("before");
    let begun = 0;
    election.on("elected", () => void election.stop());
    await lab.clock.until(election.run(() => void (begun += 1)));
    expect([begun, election.state, await lab.candidate("before").leader()]).toEqual([0, "stopped", null]);
  });

  it("shortens the time to drain when stop() asks for less", async () => {
    const election = lab.candidate("shorter");
    const events: string[] = [];
    election.on("drainTimedOut", () => events.push("drainTimedOut"));
    let end: () => void = () => undefined;
    const controller = new AbortController();
    const runs = election.run(() => new Promise<void>((resolve) => (end = resolve)), {
      signal: controller.signal,
      drainTimeout: 600_000,
    });
    await lab.poll(() => election.isLeader()).toBe(true);
    controller.abort();
    await lab.clock.until(election.stop({ drainTimeout: 50 }));
    await lab.clock.until(runs);
    expect(events).toEqual(["drainTimedOut"]);
    end();
  });

  it("reports an overrun of a restarted task", async () => {
    const election = lab.candidate("restarted-overrun", { cooldown: { initial: 0 } });
    const events: string[] = [];
    election.on("overrun", ({ overrunMs }) => events.push(overrunMs === 0 ? "overrun" : "overran"));
    let runs = 0;
    let end: () => void = () => undefined;
    const running = election.run(
      async (term) => {
        runs += 1;
        if (runs === 1) throw new Error("again");
        if (runs === 2) await new Promise<void>((resolve) => (end = resolve));
        else await untilAborted(term);
      },
      { onTaskError: "restart" },
    );
    await lab.poll(() => runs).toBe(2);
    await lab.clock.until(lab.redlock().forceRelease("leader:restarted-overrun"));
    await lab.poll(() => events).toEqual(["overrun"]);
    await lab.clock.advance(1);
    end();
    await lab.poll(() => events).toEqual(["overrun", "overran"]);
    await lab.clock.until(election.stop());
    await lab.clock.until(running);
  });

  it("ends the task with the caller's signal", async () => {
    const election = lab.candidate("signal");
    const controller = new AbortController();
    const reasons: unknown[] = [];
    const running = election.run(
      async (term) => {
        await untilAborted(term);
        reasons.push((term.signal.reason as LeadershipLostError).reason);
        throw term.signal.reason;
      },
      { signal: controller.signal },
    );
    await lab.poll(() => election.isLeader()).toBe(true);
    controller.abort();
    await lab.clock.until(running);
    expect(reasons).toEqual(["stopping"]);
    expect(election.state).toBe("idle");
  });

  it("starts a run when the task of the previous run has ended and its lease has expired", async () => {
    const election = lab.candidate("outlasting");
    const first = new AbortController();
    let end: () => void = () => undefined;
    const running = election.run(() => new Promise<void>((resolve) => (end = resolve)), {
      signal: first.signal,
      drainTimeout: 50,
    });
    await lab.poll(() => election.isLeader()).toBe(true);
    first.abort();
    await lab.clock.until(running);
    const told: string[] = [];
    const second = election.run(() => void told.push("second"), { onTaskEnd: "stop" });
    await expect(election.campaign()).rejects.toThrow(ElectionBusyError);
    expect(told).toEqual([]);
    end();
    await lab.clock.until(second);
    expect(told).toEqual(["second"]);
  });
});
