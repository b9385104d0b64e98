import { LeaderElection, LeadershipLostError, type LeaderTerm, type LossReason } from "@x/leader";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LEASE, type Nodes, startNodes } from "./support/redis.ts";

describe("LeaderElection", () => {
  let nodes: Nodes;
  beforeAll(async () => {
    nodes = await startNodes(1);
  });
  afterAll(async () => {
    await nodes[Symbol.asyncDispose]();
  });

  it("elects one of two candidates and hands over when it resigns", async () => {
    await using first = new LeaderElection(nodes.redlock(), { name: "pair", id: "a", ...LEASE });
    await using second = new LeaderElection(nodes.redlock(), { name: "pair", id: "b", ...LEASE });
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

  it("gives undefined from tryCampaign while another leads", async () => {
    await using first = new LeaderElection(nodes.redlock(), { name: "try", ...LEASE });
    await using second = new LeaderElection(nodes.redlock(), { name: "try", ...LEASE });
    const term = await first.tryCampaign();
    expect(term?.isCurrent()).toBe(true);
    expect(await second.tryCampaign()).toBeUndefined();
    expect(second.state).toBe("idle");
    await term?.resign();
    await using next = await second.tryCampaign();
    expect(next?.isCurrent()).toBe(true);
  });

  it("elects candidates that share a Redlock one after another, in the order of their coming", async () => {
    const redlock = nodes.redlock();
    const all = ["a", "b", "c"].map((id) => new LeaderElection(redlock, { name: "shared", id, ...LEASE }));
    const order: string[] = [];
    const runs: Promise<void>[] = [];
    for (const election of all) {
      election.on("elected", () => order.push(election.id));
      runs.push(
        election.run(
          (term) => new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true })),
        ),
      );
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
    await using election = new LeaderElection(nodes.redlock(), { name: "long", ...LEASE });
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
    await using election = new LeaderElection(nodes.redlock(), { name: "again", cooldown: { initial: 10 }, ...LEASE });
    const terms: number[] = [];
    const reasons: LossReason[] = [];
    election.on("lost", ({ reason }) => reasons.push(reason));
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
    await using first = new LeaderElection(nodes.redlock(), { name: "drain", id: "a", ...LEASE });
    await using second = new LeaderElection(nodes.redlock(), { name: "drain", id: "b", ...LEASE });
    const order: string[] = [];
    const firstRuns = first.run(async (term) => {
      order.push("a leads");
      await new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
      order.push(`a drains: ${(term.signal.reason as LeadershipLostError).reason}, held ${term.isCurrent()}`);
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(await term.verify()).toBe(true);
      order.push("a has drained");
    });
    await expect.poll(() => first.isLeader()).toBe(true);
    const secondRuns = second.run(async (term) => {
      order.push("b leads");
      await new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
    });
    await expect.poll(() => second.state).toBe("follower");
    await first.stop();
    await firstRuns;
    await expect.poll(() => second.isLeader()).toBe(true);
    expect(order).toEqual(["a leads", "a drains: stopping, held true", "a has drained", "b leads"]);
    await second.stop();
    await secondRuns;
  });
});
