/** Candidates of one process: elected candidates, followers, and refused calls. */
import {
  ElectionBusyError,
  ElectionStoppedError,
  LeaderElection,
  type LeadershipLostError,
  type LeaderTerm,
  type TermEndReason,
} from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { errorOf } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { untilAborted, useLab } from "./support/lab.ts";
import { LEASE } from "./support/redis.ts";

const lab = useLab();

describe("an election", () => {
  it("elects one of two candidates and hands over when it resigns", async () => {
    await using first = new LeaderElection(lab.nodes.redlock(), { name: "pair", id: "a", ...LEASE });
    await using second = new LeaderElection(lab.nodes.redlock(), { name: "pair", id: "b", ...LEASE });
    const firstTerm = await first.campaign();
    expect(first.isLeader()).toBe(true);
    expect(await second.leader()).toMatchObject({ id: "a", term: firstTerm.term, self: false });
    const waiting = second.campaign();
    await expect.poll(() => second.state).toBe("follower");
    await firstTerm.resign();
    expect(first.isLeader()).toBe(false);
    await using secondTerm = await waiting;
    expect(secondTerm.term).toBeGreaterThan(firstTerm.term);
    expect(await first.leader()).toMatchObject({ id: "b", term: secondTerm.term });
  });

  it("returns undefined from tryCampaign while another candidate leads", async () => {
    await using first = new LeaderElection(lab.nodes.redlock(), { name: "try", ...LEASE });
    await using second = new LeaderElection(lab.nodes.redlock(), { name: "try", ...LEASE });
    const term = await first.tryCampaign();
    expect(term?.isCurrent()).toBe(true);
    expect(await second.tryCampaign()).toBeUndefined();
    expect(second.state).toBe("idle");
    await term?.resign();
    await using next = await second.tryCampaign();
    expect(next?.isCurrent()).toBe(true);
  });

  it("elects candidates that share a Redlock one after another, in the order of their arrival", async () => {
    const redlock = lab.nodes.redlock();
    const all = ["a", "b", "c"].map((id) => new LeaderElection(redlock, { name: "shared", id, ...LEASE }));
    const order: string[] = [];
    const runs: Promise<void>[] = [];
    for (const election of all) {
      election.on("elected", () => order.push(election.id));
      runs.push(election.run(untilAborted));
      await expect.poll(() => election.state).toMatch(/leader|follower/);
    }
    for (const [index, election] of all.entries()) {
      await expect.poll(() => order.length, { timeout: 10_000 }).toBe(index + 1);
      expect(all.filter((each) => each.isLeader())).toEqual([election]);
      await election.stop();
    }
    await Promise.all(runs);
    expect(order).toEqual(["a", "b", "c"]);
  });

  it("keeps a term far beyond its lease", async () => {
    await using election = new LeaderElection(lab.nodes.redlock(), { name: "long", ...LEASE });
    let renewals = 0;
    election.on("renewed", () => {
      renewals += 1;
    });
    await using term = await election.campaign();
    await expect.poll(() => renewals, { timeout: 20_000 }).toBeGreaterThan(15);
    expect(term.isCurrent()).toBe(true);
    expect(await term.verify()).toBe(true);
  });

  it("runs the task again after it returned, in a new term", async () => {
    await using election = new LeaderElection(lab.nodes.redlock(), {
      name: "again",
      cooldown: { initial: 10 },
      ...LEASE,
    });
    const terms: number[] = [];
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    const running = election.run((term: LeaderTerm) => {
      terms.push(term.term);
    });
    await expect.poll(() => terms.length).toBeGreaterThan(2);
    await election.stop();
    await running;
    expect(terms).toEqual(terms.toSorted((a, b) => a - b));
    expect(new Set(terms).size).toBe(terms.length);
    expect(reasons[0]).toBe("task-ended");
    expect(election.state).toBe("stopped");
  });

  it("drains the task before it hands over", async () => {
    await using first = new LeaderElection(lab.nodes.redlock(), { name: "drain", id: "a", ...LEASE });
    await using second = new LeaderElection(lab.nodes.redlock(), { name: "drain", id: "b", ...LEASE });
    const order: string[] = [];
    const firstRuns = first.run(async (term) => {
      order.push("a leads");
      await untilAborted(term);
      order.push(`a drains: ${(term.signal.reason as LeadershipLostError).reason}, held ${term.isCurrent()}`);
      // By now an unwanted question about the leadership would have been sent.
      for (let verified = 0; verified < 5; verified += 1) expect(await term.verify()).toBe(true);
      order.push("a has drained");
    });
    await expect.poll(() => first.isLeader()).toBe(true);
    const secondRuns = second.run(async (term) => {
      order.push("b leads");
      await untilAborted(term);
    });
    await expect.poll(() => second.state).toBe("follower");
    await first.stop();
    await firstRuns;
    await expect.poll(() => second.isLeader()).toBe(true);
    expect(order).toEqual(["a leads", "a drains: stopping, held true", "a has drained", "b leads"]);
    await second.stop();
    await secondRuns;
  });

  it("takes one campaign or term at a time, and none after stop", async () => {
    const election = lab.candidate("busy");
    await using other = await lab.candidate("busy").campaign();
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

  it.each(["tryCampaign", "campaign"] as const)(
    "ends %s by its signal, even if the signal's reason is an error of a lock",
    async (call) => {
      const name = `held-${call}`;
      await using leader = await lab.candidate(name).campaign();
      const reason = await errorOf(lab.nodes.redlock().acquire(`leader:${name}`, { timeout: 0 }));
      expect(reason).toMatchObject({ code: "LOCK_HELD" });
      const controller = new AbortController();
      const ended = errorOf(lab.candidate(name)[call]({ signal: controller.signal }));
      controller.abort(reason);
      expect(await ended).toBe(reason);
      expect(leader.isCurrent()).toBe(true);
    },
  );

  it("is not busy after a call that was refused for its options", async () => {
    const election = lab.candidate("refused");
    const signal = "nope" as unknown as AbortSignal;
    await expect(election.campaign({ signal })).rejects.toThrow(/signal must be an AbortSignal, got "nope"/);
    await expect(election.tryCampaign({ signal })).rejects.toThrow(TypeError);
    await expect(election.run(() => undefined, { signal })).rejects.toThrow(TypeError);
    await using term = await election.campaign();
    expect(term.isCurrent()).toBe(true);
  });

  it("observes nothing after stop", async () => {
    const election = lab.candidate("observed-late");
    await election.stop();
    const seen: unknown[] = [];
    const off = election.on("leaderChanged", (info) => seen.push(info));
    for await (const info of election.observe()) seen.push(info);
    const witness = lab.candidate("observed-late");
    const witnessed: unknown[] = [];
    witness.on("leaderChanged", (info) => witnessed.push(info));
    await using _term = await lab.candidate("observed-late").campaign();
    await expect.poll(() => witnessed).not.toEqual([]);
    off();
    expect(seen).toEqual([]);
  });

  it("stops immediately while a winner waits out lockDelay", async () => {
    const crashed = lab.candidate("stop-early");
    await crashed.campaign();
    await lab.nodes.redlock().forceRelease("leader:stop-early");
    await expect.poll(() => crashed.isLeader(), { timeout: 10_000 }).toBe(false);
    const election = lab.candidate("stop-early", { lockDelay: 60_000 });
    const waiting = election.campaign();
    await expect.poll(() => election.state, { timeout: 10_000 }).toBe("candidate");
    const stopped = election.stop({ drainTimeout: 600_000 });
    await expect(waiting).rejects.toThrow(ElectionStoppedError);
    await stopped;
    await using next = await lab.candidate("stop-early").campaign();
    expect(next.isCurrent()).toBe(true);
  });

  it("stops immediately while an attempt takes office", async () => {
    const crashed = lab.candidate("stop-attempt");
    await crashed.campaign();
    await lab.nodes.redlock().forceRelease("leader:stop-attempt");
    await expect.poll(() => crashed.isLeader(), { timeout: 10_000 }).toBe(false);
    const election = lab.candidate("stop-attempt", { lockDelay: 60_000 });
    let drainTimeouts = 0;
    election.on("drainTimedOut", () => (drainTimeouts += 1));
    const attempt = election.tryCampaign();
    await expect.poll(() => election.state).toBe("candidate");
    await Promise.all([election.stop({ drainTimeout: 5_000 }), expect(attempt).rejects.toThrow(ElectionStoppedError)]);
    expect(drainTimeouts).toBe(0);
  });

  it("refuses a name that is not a valid name of a lock", () => {
    expect(() => lab.candidate("{a}:fence")).toThrow(/ must not end like a side key .*got "leader:\{a\}:fence"/);
  });

  it("refuses a listener for an unknown event", () => {
    const election = lab.candidate("typo");
    expect(() => election.on("typo" as "error", () => undefined)).toThrow(
      /^event must be "elected", "ended", .* or "error", got "typo"$/,
    );
    expect(() => new LeaderScheduler({ election }).on("ticks" as "tickStarted", () => undefined)).toThrow(RangeError);
  });

  it("survives listeners that throw, and asynchronous listeners that reject", async () => {
    const election = lab.candidate("listeners");
    const errors: unknown[] = [];
    const thrown = new Error("listener");
    for (const name of ["elected", "ended", "renewed"] as const) {
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
});
