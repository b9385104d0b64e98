/** How `run()` treats its task, and how a term ends. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import {
  ElectionBusyError,
  ElectionStoppedError,
  LeaderElection,
  type LeaderElectionOptions,
  LeadershipLostError,
  type LeaderTerm,
  type LossReason,
} from "@x/leader";
import { watchForLeaks } from "@x/test-support";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { connect, LEASE, type Nodes, startNodes } from "./support/redis.ts";

let nodes: Nodes;
beforeAll(async () => {
  nodes = await startNodes(1);
});
afterAll(async () => {
  await nodes[Symbol.asyncDispose]();
});

let count = 0;
const elections: LeaderElection[] = [];
afterEach(async () => {
  await Promise.all(elections.splice(0).map((election) => election.stop({ drainTimeout: 0 })));
});

function candidate(name: string, options: Partial<LeaderElectionOptions> = {}): LeaderElection {
  count += 1;
  const election = new LeaderElection(nodes.redlock(), {
    name,
    id: `c${count}`,
    ...LEASE,
    cooldown: { initial: 10 },
    ...options,
  });
  elections.push(election);
  return election;
}

async function untilAborted(term: LeaderTerm): Promise<void> {
  if (!term.signal.aborted)
    await new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe("the task of run()", () => {
  it("is handed to another candidate when it rejects, and comes back more slowly each time", async () => {
    const election = candidate("poison", { cooldown: { initial: 50, max: 100_000 }, jitter: 0 });
    const startedAt: number[] = [];
    const errors: unknown[] = [];
    election.on("taskError", ({ error }) => errors.push(error));
    const poison = new Error("poison");
    const running = election.run(() => {
      startedAt.push(performance.now());
      throw poison;
    });
    await expect.poll(() => startedAt.length, { timeout: 10_000 }).toBe(5);
    const gaps = startedAt.slice(1).map((at, index) => at - (startedAt[index] ?? 0));
    expect(gaps.map((gap, index) => gap >= 50 * 2 ** index - 5)).toEqual([true, true, true, true]);
    expect(new Set(errors)).toEqual(new Set([poison]));
    await election.stop();
    await running;
  });

  it("is restarted in the same term with onTaskError restart", async () => {
    const election = candidate("restart");
    const terms: number[] = [];
    const running = election.run(
      async (term) => {
        terms.push(term.term);
        if (terms.length < 3) throw new Error("again");
        await untilAborted(term);
      },
      { onTaskError: "restart" },
    );
    await expect.poll(() => terms.length).toBe(3);
    expect(new Set(terms).size).toBe(1);
    await election.stop();
    await running;
  });

  it("may end and leave the leadership held, or end the run", async () => {
    const held = candidate("hold");
    let calls = 0;
    const running = held.run(() => void (calls += 1), { onTaskEnd: "hold" });
    await expect.poll(() => calls).toBe(1);
    await pause(LEASE.leaseDuration + 200);
    expect([calls, held.isLeader()]).toEqual([1, true]);
    await held.stop();
    await running;

    const once = candidate("once");
    await once.run(() => void (calls += 1), { onTaskEnd: "stop" });
    expect([calls, once.state, await once.leader()]).toEqual([2, "idle", null]);
  });

  it("never overlaps itself, and is not followed by another term while it outlives its own", async () => {
    const election = candidate("overrun");
    const events: string[] = [];
    election.on("lost", ({ reason }) => events.push(`lost: ${reason}`));
    election.on("overrun", ({ by }) => events.push(by === 0 ? "overrun" : "overran"));
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
    await expect.poll(() => terms).toBe(1);
    await nodes.redlock().forceRelease("leader:overrun");
    await expect.poll(() => events, { timeout: 10_000 }).toEqual(["lost: lost-to-other", "overrun"]);
    expect(election.health()).toMatchObject({ healthy: false, running: true });
    expect(election.health({ maxTolerableExpiredLease: 60_000 }).healthy).toBe(true);
    await pause(300);
    expect(terms).toBe(1);
    end();
    await expect.poll(() => terms).toBe(2);
    expect([most, events.at(-1), election.health().healthy]).toEqual([1, "overran", true]);
    await election.stop();
    await runs;
  });

  it("that ignores its signal keeps the lock from being released, and another leads only when the lease has ended", async () => {
    const stubborn = candidate("stubborn");
    const next = candidate("stubborn");
    const events: string[] = [];
    for (const name of ["drainTimeout", "overrun"] as const) stubborn.on(name, () => events.push(name));
    let end: () => void = () => undefined;
    const runs = stubborn.run(() => new Promise<void>((resolve) => (end = resolve)), { drainTimeout: 100 });
    await expect.poll(() => stubborn.isLeader()).toBe(true);
    const waiting = next.campaign();
    await expect.poll(() => next.state).toBe("follower");
    await stubborn.stop();
    await runs;
    expect(events).toEqual(["drainTimeout"]);
    expect(next.isLeader()).toBe(false);
    await using term = await waiting;
    expect(term.isCurrent()).toBe(true);
    await expect.poll(() => events).toEqual(["drainTimeout", "overrun"]);
    end();
  });

  it("that ignores a request to resign is not begun again before it has ended, though its term has", async () => {
    const election = candidate("ignores", { cooldown: { initial: 0 } });
    let begun = 0;
    let end: () => void = () => undefined;
    const reasons: LossReason[] = [];
    election.on("lost", ({ reason }) => reasons.push(reason));
    const runs = election.run(
      async (term) => {
        begun += 1;
        if (begun === 1) await new Promise<void>((resolve) => (end = resolve));
        else await untilAborted(term);
      },
      { drainTimeout: 50 },
    );
    await expect.poll(() => begun).toBe(1);
    await election.requestResign();
    await expect.poll(() => reasons, { timeout: 10_000 }).toEqual(["renew-deadline"]);
    await pause(LEASE.leaseDuration);
    expect([begun, election.state]).toEqual([1, "idle"]);
    end();
    await expect.poll(() => begun, { timeout: 10_000 }).toBe(2);
    await election.stop();
    await runs;
  });

  it("is released under at drainTimeout only if that was asked for", async () => {
    const stubborn = candidate("let-go", { leaseDuration: 3_000, renewDeadline: 2_500, retryPeriod: 500 });
    const next = candidate("let-go", { leaseDuration: 3_000, renewDeadline: 2_500, retryPeriod: 500 });
    let end: () => void = () => undefined;
    const runs = stubborn.run(() => new Promise<void>((resolve) => (end = resolve)), {
      drainTimeout: 50,
      releaseOnDrainTimeout: true,
    });
    await expect.poll(() => stubborn.isLeader()).toBe(true);
    const waiting = next.campaign();
    await expect.poll(() => next.state).toBe("follower");
    await stubborn.stop();
    await runs;
    expect((await next.leader())?.id).not.toBe(stubborn.id);
    await using term = await waiting;
    expect(term.isCurrent()).toBe(true);
    end();
  });

  it("starts after prepare, and not at all when prepare rejects", async () => {
    const election = candidate("prepare");
    const order: string[] = [];
    await election.run(() => void order.push("task"), {
      onTaskEnd: "stop",
      prepare: async () => void order.push(`prepare: ${election.state}`),
    });
    expect(order).toEqual(["prepare: idle", "task"]);
    const broken = new Error("no cache");
    await expect(election.run(() => void order.push("never"), { prepare: () => Promise.reject(broken) })).rejects.toBe(
      broken,
    );
    expect(order).not.toContain("never");
  });

  it("ends with the caller's signal", async () => {
    const election = candidate("signal");
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
    await expect.poll(() => election.isLeader()).toBe(true);
    controller.abort();
    await running;
    expect(reasons).toEqual(["stopping"]);
    expect(election.state).toBe("idle");
  });
});

describe("a term", () => {
  it("refuses guarded calls once it is over", async () => {
    const election = candidate("guard");
    const term = await election.campaign();
    const add = term.guard((a: number, b: number) => a + b);
    expect(add(1, 2)).toBe(3);
    await term.resign();
    expect(() => add(1, 2)).toThrow(LeadershipLostError);
    expect(() => term.assertCurrent()).toThrow(/term \d+ is over \(resigned\)/);
    expect([term.isCurrent(), term.remaining(), await term.verify(), term.signal.aborted]).toEqual([
      false,
      0,
      false,
      true,
    ]);
    await expect(term.proclaim("late")).rejects.toMatchObject({ code: "LEADERSHIP_LOST", reason: "resigned" });
    await term.resign();
  });

  it("shows what it proclaims to observers", async () => {
    const election = candidate("value", { value: "one" });
    const observer = candidate("value");
    const values: (string | undefined)[] = [];
    observer.on("leaderChange", (info) => values.push(info?.value));
    const term = await election.campaign();
    await expect.poll(() => values.at(-1)).toBe("one");
    await term.proclaim("two");
    await expect.poll(() => values.at(-1)).toBe("two");
    await term.resign();
    await expect.poll(() => values.at(-1)).toBe(undefined);
    expect(values).toEqual([undefined, "one", "two", undefined]);
  });

  it("ends when somebody asks for it, for the candidate that is preferred", async () => {
    const first = candidate("preferred", { id: "first", cooldown: { initial: 2_000 } });
    const others = ["second", "third", "fourth"].map((id) =>
      candidate("preferred", { id, cooldown: { initial: 2_000 } }),
    );
    const reasons: LossReason[] = [];
    first.on("lost", ({ reason }) => reasons.push(reason));
    const runs = [first.run(untilAborted)];
    await expect.poll(() => first.isLeader()).toBe(true);
    for (const other of others) {
      runs.push(other.run(untilAborted));
      await expect.poll(() => other.state).toBe("follower");
    }
    const operator = candidate("preferred", { id: "operator" });
    expect(await operator.requestResign({ preferred: "fourth" })).toBe(true);
    await expect.poll(() => others[2]?.isLeader(), { timeout: 10_000 }).toBe(true);
    expect(reasons).toEqual(["resign-requested"]);
    await Promise.all([first, ...others].map((election) => election.stop()));
    await Promise.all(runs);
    expect(await operator.requestResign()).toBe(false);
  });

  it("goes to the waiting candidate of the highest priority", async () => {
    const first = candidate("priority");
    const low = candidate("priority", { id: "low" });
    const high = candidate("priority", { id: "high", priority: 10 });
    const term = await first.campaign();
    const lowRuns = low.run(untilAborted);
    await expect.poll(() => low.state).toBe("follower");
    const highRuns = high.run(untilAborted);
    await expect.poll(() => high.state).toBe("follower");
    await expect.poll(() => nodes.servers[0]?.call("HLEN", "{leader:priority}:candidates")).toBe(1);
    await term.resign();
    await expect.poll(() => high.isLeader(), { timeout: 10_000 }).toBe(true);
    expect(low.isLeader()).toBe(false);
    await high.stop();
    await expect.poll(() => low.isLeader(), { timeout: 10_000 }).toBe(true);
    await low.stop();
    await Promise.all([lowRuns, highRuns]);
  });

  it("ends when its process is no longer eligible, and is not sought before it is again", async () => {
    let isEligible = true;
    const election = candidate("eligible", { eligible: () => isEligible });
    const reasons: LossReason[] = [];
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

  it("begins after lockDelay when the one before did not end cleanly, at once when it did", async () => {
    const options = { lockDelay: 2_500 };
    const first = candidate("delay", options);
    const second = candidate("delay", options);
    const firstTerm = await first.campaign();
    const waiting = second.campaign();
    await firstTerm.resign();
    const secondTerm = await waiting;
    expect(secondTerm.acquiredAt.getTime()).toBeGreaterThanOrEqual(firstTerm.acquiredAt.getTime());
    await nodes.redlock().forceRelease("leader:delay");
    await expect.poll(() => second.isLeader(), { timeout: 10_000 }).toBe(false);
    const third = candidate("delay", options);
    const from = performance.now();
    await using thirdTerm = await third.campaign();
    expect(performance.now() - from).toBeGreaterThanOrEqual(options.lockDelay - 5);
    expect(thirdTerm.isCurrent()).toBe(true);
  });

  it("reports its renewals and its end on diagnostics channels and to a logger", async () => {
    const messages: string[] = [];
    const names = ["x.leader.elected", "x.leader.renewed", "x.leader.lost"] as const;
    const listeners = names.map(
      (name) => (message: unknown) => void messages.push(`${name} ${typeof (message as { term: unknown }).term}`),
    );
    for (const [index, name] of names.entries()) subscribe(name, listeners[index] ?? (() => undefined));
    const lines: string[] = [];
    const log = (_: object, message: string): void => void lines.push(message);
    const election = candidate("told", { logger: { debug: log, info: log, warn: log, error: log } });
    const term = await election.campaign();
    await expect.poll(() => messages).toContain("x.leader.renewed number");
    await term.resign();
    for (const [index, name] of names.entries()) unsubscribe(name, listeners[index] ?? (() => undefined));
    expect(messages[0]).toBe("x.leader.elected number");
    expect(messages.at(-1)).toBe("x.leader.lost number");
    expect(lines).toEqual(["elected leader", "leadership ended"]);
  });
});

describe("an election", () => {
  it("takes one campaign or term at a time, and none after stop", async () => {
    const election = candidate("busy");
    await using other = await candidate("busy").campaign();
    expect(other.isCurrent()).toBe(true);
    const controller = new AbortController();
    const waiting = election.campaign({ signal: controller.signal });
    await expect(election.campaign()).rejects.toThrow(ElectionBusyError);
    const reason = new Error("enough");
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    expect(election.state).toBe("idle");
    const again = election.campaign();
    await election.stop();
    await expect(again).rejects.toThrow(ElectionStoppedError);
    await expect(election.campaign()).rejects.toThrow(ElectionStoppedError);
  });

  it("ends its campaign and its term when the Redlock is closed", async () => {
    const redlock = connect(nodes.paths);
    const election = new LeaderElection(redlock, { name: "closed", ...LEASE });
    const reasons: LossReason[] = [];
    election.on("lost", ({ reason }) => reasons.push(reason));
    const running = election.run(untilAborted);
    await expect.poll(() => election.isLeader()).toBe(true);
    await redlock.close();
    expect(election.isLeader()).toBe(false);
    expect(reasons).toEqual(["lost-to-other"]);
    await expect(running).rejects.toMatchObject({ code: "CLOSED" });
    await election.stop();
  });

  it("survives listeners that throw", async () => {
    const election = candidate("listeners");
    const errors: unknown[] = [];
    const thrown = new Error("listener");
    for (const name of ["elected", "lost", "renewed"] as const) {
      election.on(name, () => {
        throw thrown;
      });
    }
    election.on("error", (error) => {
      errors.push(error);
      throw new Error("and this one, too");
    });
    const term = await election.campaign();
    await expect.poll(() => errors.length).toBeGreaterThan(1);
    await term.resign();
    expect(new Set(errors)).toEqual(new Set([thrown]));
  });

  it("runs fifty times in one process, each led by one, without a timer or socket left behind", async () => {
    const check = watchForLeaks();
    const redlocks = [connect(nodes.paths), connect(nodes.paths)];
    const all = redlocks.map((redlock, side) =>
      Array.from(
        { length: 50 },
        (_, index) => new LeaderElection(redlock, { name: `many-${index}`, id: `side-${side}`, ...LEASE }),
      ),
    );
    const runs = all.flat().map((election) => election.run(untilAborted));
    await expect.poll(() => all.flat().filter((election) => election.isLeader()).length, { timeout: 15_000 }).toBe(50);
    for (const [index, election] of (all[0] ?? []).entries())
      expect(election.isLeader()).not.toBe(all[1]?.[index]?.isLeader());
    await pause(2 * LEASE.leaseDuration);
    expect(all.flat().filter((election) => election.isLeader()).length).toBe(50);
    await Promise.all(all.flat().map((election) => election.stop()));
    await Promise.all(runs);
    await Promise.all(redlocks.map((redlock) => redlock.close()));
    await check();
  });
});
