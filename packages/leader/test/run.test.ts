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
import { LeaderScheduler } from "@x/leader/scheduler";
import { watchForLeaks } from "@x/test-support";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { connect, LEASE, MAX_TTL, type Nodes, startNodes } from "./support/redis.ts";

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

  it("that outlasts stop() keeps the lock until its lease has ended, also when the Redlock is closed", async () => {
    const redlock = connect(nodes.paths);
    const stubborn = new LeaderElection(redlock, { name: "closed-under", ...LEASE });
    const next = candidate("closed-under");
    let term: LeaderTerm | undefined;
    let end: () => void = () => undefined;
    const runs = stubborn.run((own) => {
      term = own;
      return new Promise<void>((resolve) => (end = resolve));
    });
    await expect.poll(() => stubborn.isLeader()).toBe(true);
    const waiting = next.campaign();
    await expect.poll(() => next.state).toBe("follower");
    await stubborn.stop({ drainTimeout: 50 });
    await runs;
    await redlock.close();
    expect([next.isLeader(), term?.isCurrent()]).toEqual([false, true]);
    await using following = await waiting;
    expect([following.isCurrent(), term?.isCurrent()]).toEqual([true, false]);
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

  it("that outlasts its run is not begun by the next run before it has ended", async () => {
    const election = candidate("two-runs");
    const controller = new AbortController();
    const ends: (() => void)[] = [];
    const task = (): Promise<void> => new Promise((resolve) => void ends.push(resolve));
    const first = election.run(task, { signal: controller.signal, drainTimeout: 50 });
    await expect.poll(() => ends.length).toBe(1);
    controller.abort();
    await first;
    await expect.poll(() => election.state).toBe("idle");
    const second = election.run(task, { drainTimeout: 50 });
    await pause(500);
    expect([ends.length, election.state, election.health()]).toMatchObject([
      1,
      "idle",
      { running: true, healthy: false },
    ]);
    ends[0]?.();
    await expect.poll(() => ends.length).toBe(2);
    await election.stop();
    await second;
    ends[1]?.();
  });

  it("that outlasts its run does not keep the next run from being stopped", async () => {
    const election = candidate("two-runs-stopped");
    const controller = new AbortController();
    let end: () => void = () => undefined;
    const first = election.run(() => new Promise<void>((resolve) => (end = resolve)), {
      signal: controller.signal,
      drainTimeout: 0,
    });
    await expect.poll(() => election.isLeader()).toBe(true);
    controller.abort();
    await first;
    await expect.poll(() => election.state).toBe("idle");
    const second = election.run(() => undefined);
    await election.stop();
    await second;
    end();
  });

  it("that ends late, but before its lease has, is followed by a term like any other", async () => {
    const election = candidate("late", { cooldown: { initial: 0 } });
    const terms: LeaderTerm[] = [];
    const runs = election.run(
      async (term) => {
        terms.push(term);
        await untilAborted(term);
        if (terms.length === 1) await pause(300);
      },
      { drainTimeout: 50 },
    );
    await expect.poll(() => election.isLeader()).toBe(true);
    await election.requestResign();
    await expect.poll(() => terms.length, { timeout: 10_000 }).toBe(2);
    expect([election.state, election.isLeader(), election.current?.term, election.health().term]).toEqual([
      "leader",
      true,
      terms[1]?.term,
      terms[1]?.term,
    ]);
    await pause(LEASE.renewDeadline);
    expect([election.state, terms[1]?.isCurrent()]).toEqual(["leader", true]);
    await election.stop();
    await runs;
  });

  it("may resign, and keeps the lock until it has ended", async () => {
    const election = candidate("resigns", { cooldown: { initial: 10_000 } });
    const next = candidate("resigns");
    const held: boolean[] = [];
    const runs = election.run(async (term) => {
      await term.resign({ cooldown: 0 });
      held.push(term.signal.aborted, await term.verify());
      await pause(200);
      held.push(await term.verify());
    });
    await expect.poll(() => held.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(3);
    expect(held.slice(0, 3)).toEqual([true, true, true]);
    await expect.poll(() => held.length, { timeout: 5_000 }).toBeGreaterThan(3);
    await election.stop();
    await runs;
    await using term = await next.campaign();
    expect(term.isCurrent()).toBe(true);
  });

  it.each([
    ["resigns", (election: LeaderElection) => election.current?.resign({ cooldown: 0 })],
    ["is stopped", (election: LeaderElection) => void election.stop({ drainTimeout: 60_000 })],
  ])("keeps the lock for as long as it drains, leases beyond the moment when it %s", async (how, endTerm) => {
    const [election, next] = [candidate(`drains: ${how}`), candidate(`drains: ${how}`)];
    const held: boolean[] = [];
    const led: string[] = [];
    let hasDrained = false;
    const runs = election.run(
      async (term) => {
        if (hasDrained) return;
        await untilAborted(term);
        const endMs = performance.now() + 3 * LEASE.leaseDuration;
        while (performance.now() < endMs) {
          held.push(term.isCurrent());
          await pause(50);
        }
        held.push(await term.verify());
        hasDrained = true;
      },
      { drainTimeout: 60_000 },
    );
    await expect.poll(() => election.isLeader()).toBe(true);
    const nextRuns = next.run(async (term) => {
      led.push(hasDrained ? "after" : "meanwhile");
      await untilAborted(term);
    });
    await expect.poll(() => next.state).toBe("follower");
    await endTerm(election);
    await expect.poll(() => led[0], { timeout: 20_000 }).toBe("after");
    expect(new Set(held)).toEqual(new Set([true]));
    await Promise.all([election.stop(), next.stop()]);
    await Promise.all([runs, nextRuns]);
  });

  it("may stop its election without awaiting that, and hands over when it has ended", async () => {
    const election = candidate("stops-itself");
    const next = candidate("stops-itself");
    const events: string[] = [];
    election.on("drainTimeout", () => events.push("drainTimeout"));
    election.on("lost", ({ reason }) => events.push(reason));
    await election.run(() => void election.stop());
    await using term = await next.campaign();
    expect([term.isCurrent(), events]).toEqual([true, ["stopping"]]);
  });

  it("is not begun in a term that was asked to end before", async () => {
    const election = candidate("before");
    let begun = 0;
    election.on("elected", () => void election.stop());
    await election.run(() => void (begun += 1));
    expect([begun, election.state, await candidate("before").leader()]).toEqual([0, "stopped", null]);
  });

  it("has less time to end when stop() asks for it while it drains", async () => {
    const election = candidate("shorter");
    const events: string[] = [];
    election.on("drainTimeout", () => events.push("drainTimeout"));
    let end: () => void = () => undefined;
    const controller = new AbortController();
    const runs = election.run(() => new Promise<void>((resolve) => (end = resolve)), {
      signal: controller.signal,
      drainTimeout: 600_000,
    });
    await expect.poll(() => election.isLeader()).toBe(true);
    controller.abort();
    await election.stop({ drainTimeout: 50 });
    await runs;
    expect(events).toEqual(["drainTimeout"]);
    end();
  });

  it("has its overrun told in a restarted run, too", async () => {
    const election = candidate("restarted-overrun", { cooldown: { initial: 0 } });
    const events: string[] = [];
    election.on("overrun", ({ by }) => events.push(by === 0 ? "overrun" : "overran"));
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
    await expect.poll(() => runs).toBe(2);
    await nodes.redlock().forceRelease("leader:restarted-overrun");
    await expect.poll(() => events, { timeout: 10_000 }).toEqual(["overrun"]);
    end();
    await expect.poll(() => events).toEqual(["overrun", "overran"]);
    await election.stop();
    await running;
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

  it("starts after a prepare that is not async", async () => {
    let isPrepared = false;
    const prepare = ((): void => void (isPrepared = true)) as unknown as () => Promise<void>;
    await candidate("prepare-sync").run(() => expect(isPrepared).toBe(true), { onTaskEnd: "stop", prepare });
    expect(isPrepared).toBe(true);
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
    await expect(election.campaign().then((again) => again.resign({ cooldown: -1 }))).rejects.toThrow(RangeError);
    await expect(term.proclaim("late")).rejects.toMatchObject({ code: "LEADERSHIP_LOST", reason: "resigned" });
    await term.resign();
  });

  it("shows what it proclaims to observers", async () => {
    const election = candidate("value", { value: "one" });
    const observer = candidate("value");
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

  it("goes to the preferred candidate at each vacancy, also after a task that took longer than a lease to end", async () => {
    const slowly = async (term: LeaderTerm): Promise<void> => {
      await untilAborted(term);
      await pause(LEASE.leaseDuration + 500);
    };
    const ids = ["one", "two", "three"];
    const all = ids.map((id) => candidate("each vacancy", { id, cooldown: { initial: 0, max: 1 } }));
    const runs: Promise<void>[] = [];
    for (const each of all) {
      runs.push(each.run(slowly));
      await expect.poll(() => each.state).toMatch(/leader|follower/);
    }
    const operator = candidate("each vacancy", { id: "operator" });
    for (const preferred of ["three", "one", "three", "two"]) {
      await operator.requestResign({ preferred });
      await expect
        .poll(async () => all.filter((each) => each.isLeader()).map(({ id, state }) => `${id} ${state}`), {
          timeout: 15_000,
        })
        .toEqual([`${preferred} leader`]);
    }
    await Promise.all(all.map((each) => each.stop()));
    await Promise.all(runs);
  }, 60_000);

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
    const logger = pino({}, { write: (line: string) => lines.push((JSON.parse(line) as { msg: string }).msg) });
    const election = candidate("told", { logger });
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

  it("listens to no signal of the process any more when one of them cannot be listened to", async () => {
    const election = candidate("no-listener");
    const refuse = (name: string | symbol): void => {
      if (name === "SIGUSR2") throw new Error("no such listener");
    };
    process.on("newListener", refuse);
    onTestFinished(() => void process.off("newListener", refuse));
    const task = (): void => undefined;
    for (const stopOn of [["SIGUSR1", "SIGUSR2"], ["SIGUSR2"]] as const)
      await expect(election.run(task, { stopOn })).rejects.toThrow("no such listener");
    expect(process.listenerCount("SIGUSR1")).toBe(0);
  });

  it("is not busy after a call that was refused for its options", async () => {
    const election = candidate("refused");
    const signal = "nope" as unknown as AbortSignal;
    await expect(election.campaign({ signal })).rejects.toThrow(/signal must be an AbortSignal, got "nope"/);
    await expect(election.tryCampaign({ signal })).rejects.toThrow(TypeError);
    await expect(election.run(() => undefined, { signal })).rejects.toThrow(TypeError);
    await using term = await election.campaign();
    expect(term.isCurrent()).toBe(true);
  });

  it("ends what it observes when the Redlock is closed, and reports no error of that", async () => {
    const redlock = connect(nodes.paths);
    await using election = new LeaderElection(redlock, { name: "observed", ...LEASE, leaseDuration: MAX_TTL });
    const errors: unknown[] = [];
    election.on("error", (error) => errors.push(error));
    election.on("leaderChange", () => undefined);
    const leaders = election.observe();
    expect(await leaders.next()).toEqual({ done: false, value: null });
    const next = leaders.next();
    await redlock.close();
    const closed = performance.now();
    expect(await next).toEqual({ done: true, value: undefined });
    expect(performance.now() - closed).toBeLessThan(MAX_TTL / 2);
    await pause(MAX_TTL / 4);
    expect(errors).toEqual([]);
  });

  it("observes nothing after stop", async () => {
    const election = candidate("observed-late");
    await election.stop();
    const seen: unknown[] = [];
    const off = election.on("leaderChange", (info) => seen.push(info));
    for await (const info of election.observe()) seen.push(info);
    await pause(300);
    off();
    expect(seen).toEqual([]);
  });

  it("is not ended by maxHold of its Redlock", async () => {
    const redlock = nodes.redlock({ maxHold: 500 });
    await using election = new LeaderElection(redlock, { name: "max-hold", ...LEASE });
    const term = await election.campaign();
    await pause(1_000);
    expect(term.isCurrent()).toBe(true);
    await term.resign();
    await using again = await election.tryCampaign();
    await pause(1_000);
    expect(again?.isCurrent()).toBe(true);
  });

  describe("whose Redlock is closed", () => {
    it("ends its term at once, before the lock, and its campaign", async () => {
      const redlock = connect(nodes.paths);
      const election = new LeaderElection(redlock, { name: "closed", ...LEASE });
      const reasons: LossReason[] = [];
      election.on("lost", ({ reason }) => reasons.push(reason));
      let term: LeaderTerm | undefined;
      const running = election.run((own) => {
        term = own;
        return untilAborted(own);
      });
      await expect.poll(() => election.isLeader()).toBe(true);
      const closing = redlock.close();
      expect([election.isLeader(), term?.isCurrent(), reasons]).toEqual([false, false, ["redlock-closed"]]);
      expect(term?.signal.reason).toMatchObject({ code: "LEADERSHIP_LOST", reason: "redlock-closed" });
      await expect(running).rejects.toMatchObject({ code: "CLOSED" });
      await closing;
      await election.stop();
    });

    it("leaves its lease to run out, since its task may still run", async () => {
      const redlock = connect(nodes.paths);
      const election = new LeaderElection(redlock, { name: "closed-leaves", ...LEASE });
      let renewedMs = Number.POSITIVE_INFINITY;
      election.on("renewed", ({ took }) => {
        renewedMs = performance.now() - took;
      });
      let end: () => void = () => undefined;
      const running = election.run(() => new Promise<void>((resolve) => (end = resolve)));
      await expect.poll(() => renewedMs).toBeLessThan(Number.POSITIVE_INFINITY);
      const next = candidate("closed-leaves");
      const waiting = next.campaign();
      await expect.poll(() => next.state).toBe("follower");
      await redlock.close();
      await using following = await waiting;
      expect(following.isCurrent()).toBe(true);
      expect(performance.now() - renewedMs).toBeGreaterThanOrEqual(LEASE.leaseDuration - 1);
      end();
      await expect(running).rejects.toMatchObject({ code: "CLOSED" });
      await election.stop();
    });

    it("gives up the lock that it has not begun to lead with", async () => {
      const crashed = candidate("closed-early");
      await crashed.campaign();
      await nodes.redlock().forceRelease("leader:closed-early");
      const redlock = connect(nodes.paths);
      const election = new LeaderElection(redlock, { name: "closed-early", ...LEASE, lockDelay: 600_000 });
      const end = election.campaign().catch((error: unknown) => error);
      await expect.poll(() => election.state).toBe("candidate");
      const held = (): Promise<unknown> | undefined =>
        nodes.servers[0]?.call("EXISTS", redlock.lockKey("leader:closed-early"));
      expect(await held()).toBe(1);
      await redlock.close();
      expect(await end).toMatchObject({ code: "CLOSED" });
      expect(await held()).toBe(0);
      await election.stop();
    });

    it("ends a campaign that waits for what cannot come", async () => {
      const redlock = connect(nodes.paths);
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
      expect(await Promise.all(ends)).toEqual(["CLOSED", "CLOSED", "CLOSED"]);
      await expect(refused.tryCampaign()).rejects.toMatchObject({ code: "CLOSED" });
      end();
      await Promise.all([failing, refused, busy].map((election) => election.stop()));
    });
  });

  it("stops at once while a winner still waits out lockDelay", async () => {
    const crashed = candidate("stop-early");
    await crashed.campaign();
    await nodes.redlock().forceRelease("leader:stop-early");
    await expect.poll(() => crashed.isLeader(), { timeout: 10_000 }).toBe(false);
    const election = candidate("stop-early", { lockDelay: 60_000 });
    const waiting = election.campaign();
    await expect.poll(() => election.state, { timeout: 10_000 }).toBe("candidate");
    const stopped = election.stop({ drainTimeout: 600_000 });
    await expect(waiting).rejects.toThrow(ElectionStoppedError);
    await stopped;
    await using next = await candidate("stop-early").campaign();
    expect(next.isCurrent()).toBe(true);
  });

  it("waits out lockDelay also after a winner that stopped while it did", async () => {
    const crashed = candidate("delay-kept");
    await crashed.campaign();
    await nodes.redlock().forceRelease("leader:delay-kept");
    await expect.poll(() => crashed.isLeader(), { timeout: 10_000 }).toBe(false);
    const second = candidate("delay-kept", { lockDelay: 60_000 });
    const waiting = second.campaign();
    await expect.poll(() => second.state, { timeout: 10_000 }).toBe("candidate");
    await expect.poll(() => nodes.servers[0]?.call("HGET", "{leader:delay-kept}:leader", "ended")).toBe("0");
    const third = candidate("delay-kept", { lockDelay: 2_500 });
    await Promise.all([second.stop(), expect(waiting).rejects.toThrow(ElectionStoppedError)]);
    const from = performance.now();
    await using term = await third.campaign();
    expect(performance.now() - from).toBeGreaterThanOrEqual(2_500 - 5);
    expect(term.isCurrent()).toBe(true);
  });

  it("stops at once while an attempt takes office", async () => {
    const crashed = candidate("stop-attempt");
    await crashed.campaign();
    await nodes.redlock().forceRelease("leader:stop-attempt");
    await expect.poll(() => crashed.isLeader(), { timeout: 10_000 }).toBe(false);
    const election = candidate("stop-attempt", { lockDelay: 60_000 });
    let drainTimeouts = 0;
    election.on("drainTimeout", () => (drainTimeouts += 1));
    const attempt = election.tryCampaign();
    await expect.poll(() => election.state).toBe("candidate");
    await Promise.all([election.stop({ drainTimeout: 5_000 }), expect(attempt).rejects.toThrow(ElectionStoppedError)]);
    expect(drainTimeouts).toBe(0);
  });

  it("runs again after a task that outlasted its run, when that has ended and its lease is over", async () => {
    const election = candidate("outlasting");
    const first = new AbortController();
    let end: () => void = () => undefined;
    const running = election.run(() => new Promise<void>((resolve) => (end = resolve)), {
      signal: first.signal,
      drainTimeout: 50,
    });
    await expect.poll(() => election.isLeader()).toBe(true);
    first.abort();
    await running;
    const told: string[] = [];
    const second = election.run(() => void told.push("second"), { onTaskEnd: "stop" });
    await expect(election.campaign()).rejects.toThrow(ElectionBusyError);
    expect(told).toEqual([]);
    end();
    await second;
    expect(told).toEqual(["second"]);
  });

  it("refuses a name that no lock can have", () => {
    expect(() => candidate("{a}:fence")).toThrow(/ must not be .*got "leader:\{a\}:fence"/);
  });

  it("refuses names of signals that there are not", async () => {
    const election = candidate("signals");
    const task = (): void => undefined;
    await expect(election.run(task, { stopOn: "SIGTERM" as unknown as [] })).rejects.toThrow(TypeError);
    await expect(election.run(task, { stopOn: ["SIGTREM" as "SIGTERM"] })).rejects.toThrow(
      /stopOn must name signals of this system, got "SIGTREM"/,
    );
  });

  it("refuses a listener for an event that there is not", () => {
    const election = candidate("typo");
    expect(() => election.on("typo" as "error", () => undefined)).toThrow(
      /^event must be "elected", "lost", .* or "error", got "typo"$/,
    );
    expect(() => new LeaderScheduler({ election }).on("ticks" as "tick", () => undefined)).toThrow(RangeError);
  });

  it("survives listeners that throw, and async ones that reject", async () => {
    const election = candidate("listeners");
    const errors: unknown[] = [];
    const thrown = new Error("listener");
    for (const name of ["elected", "lost", "renewed"] as const) {
      election.on(name, () => {
        throw thrown;
      });
      election.on(name, (): unknown => Promise.reject(thrown));
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

  it("tells an error listener that rejects of each error once, and warns of its own errors", async () => {
    const election = candidate("sink");
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning.message);
    process.on("warning", onWarning);
    onTestFinished(() => void process.off("warning", onWarning));
    const thrown = new Error("a listener throws");
    const errors: unknown[] = [];
    election.on("elected", () => {
      throw thrown;
    });
    election.on("error", (told): unknown => {
      errors.push(told);
      return errors.length > 100 ? undefined : Promise.reject(new Error("sink is down"));
    });
    await using term = await election.campaign();
    expect(term.isCurrent()).toBe(true);
    await expect.poll(() => warnings).toContain("sink is down");
    expect(errors).toEqual([thrown]);
  });

  it("stops with all others on a signal of the process, with one listener for all", async () => {
    const before = process.listenerCount("SIGUSR2");
    const all = Array.from({ length: 12 }, (_, index) => candidate(`usr2-${index}`));
    const runs = all.map((election) => election.run(untilAborted, { stopOn: ["SIGUSR2"] }));
    await expect.poll(() => all.every((election) => election.isLeader())).toBe(true);
    expect(process.listenerCount("SIGUSR2")).toBe(before + 1);
    process.kill(process.pid, "SIGUSR2");
    await Promise.all(runs);
    expect(all.map((election) => election.isLeader())).not.toContain(true);
    expect(process.listenerCount("SIGUSR2")).toBe(before);
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
