/** A term while the lock nodes fail. */
import { LeaderElection, type LeaderElectionOptions, type LeaderInfo, type TermEndReason } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { startProxy } from "@x/test-support";
import { describe, it } from "vitest";
import { untilAborted } from "./support/lab.ts";
import { LEASE, MAX_TTL, type Nodes, startNodes } from "./support/redis.ts";

/** No stall of a loaded machine ends such a term. Successful renewals are as frequent as with a short lease. */
const LONG = { leaseDuration: 10_000, renewDeadline: 9_000, retryPeriod: 200 } as const;
/** As long as a quarantine of each of five nodes permits. */
const LASTING = { leaseDuration: 2_500, renewDeadline: 2_300, retryPeriod: 200 } as const;

/** Nodes, and elections on them that end before the nodes do. */
class Scene implements AsyncDisposable {
  readonly nodes: Nodes;
  readonly #elections: LeaderElection[] = [];

  constructor(nodes: Nodes) {
    this.nodes = nodes;
  }

  candidate(id: string, options: Partial<LeaderElectionOptions> = {}, redlock = this.nodes.redlock()): LeaderElection {
    const election = new LeaderElection(redlock, { name: "jobs", id, ...LEASE, cooldown: { initial: 10 }, ...options });
    this.#elections.push(election);
    return election;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#elections.map((election) => election.stop({ drainTimeout: 0 })));
    await this.nodes[Symbol.asyncDispose]();
  }
}

async function start(count: number): Promise<Scene> {
  return new Scene(await startNodes(count));
}

// Each test waits for leases, quarantines and timeouts, on its own nodes.
describe.concurrent("an election during an outage of lock nodes", () => {
  it("loses the term at its deadline when Redis is down for longer, and is elected again afterwards", async ({
    expect,
  }) => {
    await using scene = await start(1);
    const { nodes } = scene;
    const election = scene.candidate("a");
    const reasons: TermEndReason[] = [];
    const terms: number[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    election.on("elected", ({ term }) => terms.push(term));
    const running = election.run(untilAborted);
    await expect.poll(() => terms.length).toBe(1);
    await nodes.servers[0]?.kill();
    await expect.poll(() => reasons, { timeout: 10_000 }).toEqual(["renew-deadline"]);
    expect(election.isLeader()).toBe(false);
    expect(election.health()).toMatchObject({ healthy: true, running: true });
    await nodes.servers[0]?.start();
    await expect.poll(() => terms.length, { timeout: 20_000 }).toBe(2);
    expect(terms[1]).toBeGreaterThan(terms[0] ?? 0);
    await election.stop();
    await running;
  });

  it("reports that it cannot reach its nodes, and continues to campaign", async ({ expect }) => {
    await using scene = await start(1);
    const { nodes } = scene;
    await nodes.servers[0]?.kill();
    const election = scene.candidate("a");
    const codes: unknown[] = [];
    election.on("error", (error) => codes.push((error as { code?: unknown }).code));
    const running = election.run(untilAborted);
    await expect.poll(() => codes.length, { timeout: 20_000 }).toBeGreaterThan(0);
    expect(codes[0]).toBe("QUORUM_UNREACHABLE");
    await nodes.servers[0]?.start();
    await expect.poll(() => election.isLeader(), { timeout: 20_000 }).toBe(true);
    await election.stop();
    await running;
  });

  it("is not affected by a minority of nodes that are down or hang", async ({ expect }) => {
    await using scene = await start(5);
    const { nodes } = scene;
    const election = scene.candidate("a", LONG, nodes.redlock({ ttl: LONG.leaseDuration, maxTtl: LONG.leaseDuration }));
    let renewals = 0;
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    election.on("renewed", () => {
      renewals += 1;
    });
    await using term = await election.campaign();
    // A quorum is enough for a term. A node that connected later receives the lock with the first renewal.
    const observer = nodes.redlock();
    const states = async (): Promise<unknown[]> =>
      (await observer.inspect("leader:jobs")).nodes.map(({ state }) => state);
    await expect.poll(states).toEqual(Array.from({ length: 5 }, () => "held"));
    await nodes.servers[0]?.kill();
    nodes.servers[1]?.freeze();
    const before = renewals;
    await expect.poll(() => renewals, { timeout: 20_000 }).toBeGreaterThan(before + 15);
    expect(reasons).toEqual([]);
    expect(term.isCurrent()).toBe(true);
    expect(await term.verify()).toBe(true);
    expect(await election.leader()).toMatchObject({ term: term.term, self: true });
    nodes.servers[1]?.thaw();
  });

  it("hands over even if a minority of nodes hangs", async ({ expect }) => {
    await using scene = await start(3);
    const { nodes } = scene;
    const first = scene.candidate("a");
    const second = scene.candidate("b");
    const term = await first.campaign();
    const waiting = second.campaign();
    await expect.poll(() => second.state).toBe("follower");
    nodes.servers[2]?.freeze();
    await term.resign();
    await using next = await waiting;
    expect(next.term).toBeGreaterThan(term.term);
    nodes.servers[2]?.thaw();
  });

  it("keeps leadership and record while every node in turn restarts without persistence", async ({ expect }) => {
    await using scene = await start(5);
    const { nodes } = scene;
    const maxTtl = LASTING.leaseDuration;
    const redlock = nodes.redlock({ quarantine: true, ttl: maxTtl, maxTtl });
    const election = scene.candidate("a", { ...LASTING, value: "here" }, redlock);
    const reasons: TermEndReason[] = [];
    election.on("ended", ({ reason }) => reasons.push(reason));
    let renewals = 0;
    election.on("renewed", () => {
      renewals += 1;
    });
    await using term = await election.campaign();
    for (const [index, server] of nodes.servers.entries()) {
      await server.restart();
      const before = renewals;
      await expect.poll(() => renewals, { timeout: 20_000 }).toBeGreaterThan(before + 3);
      const quarantineLeftMs = async (): Promise<number | undefined> =>
        (await redlock.inspect("leader:jobs")).nodes[index]?.quarantineLeftMs;
      await expect.poll(quarantineLeftMs, { timeout: 20_000 }).toBe(0);
    }
    expect(reasons).toEqual([]);
    expect(term.isCurrent()).toBe(true);
    await expect.poll(async () => (await election.leader())?.value, { timeout: 10_000 }).toBe("here");
    for (const server of nodes.servers) {
      await expect.poll(() => server.call("HGET", "{leader:jobs}:leader", "term")).toBe(String(term.term));
    }
  });

  it("ends a term when an operator releases the lock by force, and elects the next candidate in order", async ({
    expect,
  }) => {
    await using scene = await start(3);
    const { nodes } = scene;
    const order: string[] = [];
    // Even on a slow machine only the operator ends a term, and no request times out.
    const patient = (): Redlock => nodes.redlock({ ttl: 20_000, maxTtl: 20_000, nodeTimeout: 5_000 });
    const [first, second] = ["a", "b"].map((id) =>
      scene.candidate(id, { leaseDuration: 20_000, renewDeadline: 15_000 }, patient()),
    ) as [LeaderElection, LeaderElection];
    for (const election of [first, second]) {
      election.on("elected", () => order.push(`${election.id} elected`));
      election.on("ended", ({ reason }) => order.push(`${election.id} ended: ${reason}`));
    }
    const firstRuns = first.run(untilAborted);
    await expect.poll(() => order).toEqual(["a elected"]);
    const secondRuns = second.run(untilAborted);
    const operator = patient();
    const withWaiter = async (): Promise<number> =>
      (await operator.inspect("leader:jobs")).nodes.filter((node) => node.waiters === 1).length;
    await expect.poll(withWaiter).toBeGreaterThanOrEqual(operator.quorum);
    expect(await operator.forceRelease("leader:jobs")).toBe(true);
    await expect.poll(() => order.length, { timeout: 15_000 }).toBeGreaterThanOrEqual(3);
    expect(order.toSorted().slice(0, 3)).toEqual(["a elected", "a ended: forced", "b elected"]);
    await Promise.all([first.stop(), second.stop()]);
    await Promise.all([firstRuns, secondRuns]);
  });

  it("never has two leaders when the key is deleted manually", async ({ expect }) => {
    await using scene = await start(1);
    const { nodes } = scene;
    const first = scene.candidate("a");
    const second = scene.candidate("b");
    const firstRuns = first.run(untilAborted);
    await expect.poll(() => first.isLeader()).toBe(true);
    const secondRuns = second.run(untilAborted);
    await expect.poll(() => second.state).toBe("follower");
    let elections2 = 0;
    second.on("elected", () => {
      elections2 += 1;
    });
    for (let time = 0; time < 5; time += 1) {
      await nodes.servers[0]?.call("DEL", "leader:jobs");
      const until = Date.now() + 400;
      await expect
        .poll(() => {
          expect(first.isLeader() && second.isLeader()).toBe(false);
          return Date.now();
        })
        .toBeGreaterThan(until);
    }
    await expect.poll(() => first.isLeader() !== second.isLeader(), { timeout: 10_000 }).toBe(true);
    expect(elections2).toBeLessThanOrEqual(5);
    await Promise.all([first.stop(), second.stop()]);
    await Promise.all([firstRuns, secondRuns]);
  });

  it("reports every term to an observer once and in order, including terms that the observer could not see", async ({
    expect,
  }) => {
    await using scene = await start(1);
    const { nodes } = scene;
    const server = nodes.servers[0];
    if (server === undefined) throw new Error("no server");
    await using proxy = await startProxy({ host: server.host, port: server.port });
    const far = new Redlock([proxy.url], { ttl: MAX_TTL, maxTtl: MAX_TTL, nodeTimeout: 300 });
    const observer = scene.candidate("observer", {}, far);
    const seen: (LeaderInfo | null)[] = [];
    const watching = (async (): Promise<void> => {
      for await (const info of observer.observe()) seen.push(info);
    })();
    await expect.poll(() => seen).toEqual([null]);
    const terms: number[] = [];
    const election = scene.candidate("a");
    const lead = async (): Promise<void> => {
      const term = await election.campaign();
      terms.push(term.term);
      await term.resign({ cooldown: 0 });
    };
    for (let time = 0; time < 3; time += 1) await lead();
    proxy.refuse();
    proxy.drop();
    for (let time = 0; time < 3; time += 1) await lead();
    proxy.heal();
    for (let time = 0; time < 2; time += 1) await lead();
    const seenTerms = (): number[] => seen.flatMap((info) => info?.term ?? []);
    await expect.poll(() => seenTerms().at(-1), { timeout: 20_000 }).toBe(terms.at(-1));
    expect(seenTerms()).toEqual(terms);
    await observer.stop();
    await watching;
    await far.close();
  });
});
