/** Candidates in separate processes, while they or the nodes die, freeze or forget. */
import { describe, it } from "vitest";
import { Candidate, type CandidateArgs } from "./support/candidate.ts";
import { LEASE, MAX_TTL, type Nodes, startNodes } from "./support/redis.ts";

/** Lock nodes, and candidates that end with the nodes. */
class Scene implements AsyncDisposable {
  readonly candidates: Candidate[] = [];
  readonly #nodes: Nodes;

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
  }

  start(id: string, given: Partial<CandidateArgs> = {}): Candidate {
    const { paths } = this.#nodes;
    const candidate = new Candidate({ paths, name: "jobs", id, maxTtl: MAX_TTL, ...LEASE, ...given });
    this.candidates.push(candidate);
    return candidate;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.candidates.map((candidate) => candidate[Symbol.asyncDispose]()));
    await this.#nodes[Symbol.asyncDispose]();
  }
}

async function startScene(): Promise<Scene> {
  return new Scene(await startNodes(3));
}

async function elected(candidate: Candidate): Promise<number> {
  return (await candidate.next("elected")).term;
}

// Each test waits for leases, on its own nodes.
describe.concurrent("failover of processes", () => {
  it("never has two running terms at the same time, through twelve faults", async ({ expect }) => {
    await using scene = await startScene();
    const start4 = ["a", "b", "c", "d"].map((id) => scene.start(id));
    await Promise.all(start4.map((candidate) => candidate.next("ready")));
    let live = start4;
    for (let fault = 0; fault < 12; fault += 1) {
      await expect.poll(() => leaderOf(live), { timeout: 15_000 }).toSatisfy(isAtWork);
      const leader = leaderOf(live);
      if (leader === undefined) continue;
      if (fault % 3 === 0) {
        await leader.child.kill();
        const replacement = scene.start(`r${fault}`);
        await replacement.next("ready");
        live = [...live.filter((each) => each !== leader), replacement];
      } else if (fault % 3 === 1) {
        leader.child.freeze();
        const others = live.filter((each) => each !== leader);
        const count = others.flatMap((each) => each.all("elected")).length;
        await expect
          .poll(() => others.flatMap((each) => each.all("elected")).length, { timeout: 15_000 })
          .toBeGreaterThan(count);
        leader.child.thaw();
      } else leader.order({ type: "block", ms: 1_200 });
    }
    const work = scene.candidates.flatMap((each) => each.all("worked")).toSorted((a, b) => a.at - b.at);
    const lastAt = new Map<number, number>();
    const firstAt = new Map<number, number>();
    for (const call of work) {
      lastAt.set(call.term, call.at);
      if (!firstAt.has(call.term)) firstAt.set(call.term, call.at);
    }
    const terms = [...firstAt.keys()].toSorted((a, b) => a - b);
    for (const [index, term] of terms.entries()) {
      const next = terms[index + 1];
      if (next === undefined) break;
      expect(lastAt.get(term) ?? 0).toBeLessThanOrEqual(firstAt.get(next) ?? 0);
    }
    expect(terms.length).toBeGreaterThan(6);
  });

  it("replaces a leader that was killed, with a higher term", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a");
    const firstTerm = await elected(a);
    const b = scene.start("b");
    const c = scene.start("c");
    await Promise.all([b.next("ready"), c.next("ready")]);
    await a.child.kill();
    await expect.poll(() => b.all("elected").length + c.all("elected").length, { timeout: 15_000 }).toBe(1);
    const [next] = [...b.all("elected"), ...c.all("elected")];
    expect(next?.term).toBeGreaterThan(firstTerm);
  });

  it("hands over on SIGTERM before its lease has expired, after the task has ended", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", { leaseDuration: 3_000, renewDeadline: 2_500, retryPeriod: 1_000 });
    const firstTerm = await elected(a);
    const b = scene.start("b", { leaseDuration: 3_000, renewDeadline: 2_500, retryPeriod: 1_000 });
    await b.next("ready");
    const end = await a.child.kill("SIGTERM");
    expect(end).toMatchObject({ code: 0 });
    expect(a.all("ended")).toMatchObject([{ term: firstTerm, reason: "stopping" }]);
    expect(await elected(b)).toBeGreaterThan(firstTerm);
  });

  it("runs no guarded call of a frozen leader after the leader has thawed", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a");
    const firstTerm = await elected(a);
    await a.next("worked");
    a.child.freeze();
    const b = scene.start("b");
    const secondTerm = await elected(b);
    const electedAt = b.all("elected")[0]?.at ?? 0;
    a.child.thaw();
    await expect.poll(() => a.all("ended").length, { timeout: 10_000 }).toBe(1);
    expect(a.all("worked").filter((call) => call.term === firstTerm && call.at >= electedAt)).toEqual([]);
    expect(secondTerm).toBeGreaterThan(firstTerm);
    expect(["renew-deadline", "taken"]).toContain(a.all("ended")[0]?.reason);
  });

  it("loses the term of a blocked event loop, and detects the loss before the next callback", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a");
    const firstTerm = await elected(a);
    const b = scene.start("b");
    await b.next("ready");
    a.order({ type: "block", ms: 4_000 });
    const unblocked = await a.next("unblocked");
    expect(unblocked.isCurrent).toBe(false);
    expect(await elected(b)).toBeGreaterThan(firstTerm);
    expect(a.all("worked").filter((call) => call.term === firstTerm && call.at >= unblocked.at)).toEqual([]);
  });

  it("separates the terms of candidates that have the same ID", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("same");
    const firstTerm = await elected(a);
    const b = scene.start("same");
    await b.next("ready");
    await a.child.kill();
    expect(await elected(b)).toBeGreaterThan(firstTerm);
    const again = scene.start("same");
    await again.next("ready");
    b.order({ type: "stop" });
    await b.next("done");
    expect(await elected(again)).toBeGreaterThan(b.all("elected")[0]?.term ?? 0);
  });
});

/** The candidate that was elected last, unless it has died or reported the end of its term. */
function leaderOf(candidates: readonly Candidate[]): Candidate | undefined {
  const newest = candidates.toSorted((a, b) => lastTerm(b) - lastTerm(a))[0];
  if (newest === undefined || !newest.child.isRunning || lastTerm(newest) === 0) return undefined;
  return newest.all("ended").some((end) => end.term === lastTerm(newest)) ? undefined : newest;
}

function isAtWork(leader: Candidate | undefined): boolean {
  return leader !== undefined && leader.all("worked").filter((call) => call.term === lastTerm(leader)).length > 3;
}

function lastTerm(candidate: Candidate): number {
  return candidate.all("elected").at(-1)?.term ?? 0;
}
