/** Renewal from a worker thread, in processes whose event loop is blocked. */
import { LeaderElection } from "@x/leader";
import { programUrl } from "@x/test-support";
import { describe, it } from "vitest";
import { SharedMemory } from "../src/term/worker/shared.ts";
import { Candidate, type CandidateArgs } from "./support/candidate.ts";
import { LEASE, MAX_TTL, type Nodes, startNodes } from "./support/redis.ts";

/** A thread that shares two cores with the other tests renews in time. */
const LASTING = { leaseDuration: MAX_TTL, renewDeadline: 2_700, retryPeriod: 200 } as const;

type Own = Pick<CandidateArgs, "quarantine" | "isStubborn">;

/** A node, and candidates that end with the node. */
class Scene implements AsyncDisposable {
  readonly nodes: Nodes;
  readonly #candidates: Candidate[] = [];

  constructor(nodes: Nodes) {
    this.nodes = nodes;
  }

  start(
    id: string,
    maxBlock?: number,
    own: Own = {},
    redlock = programUrl(new URL("children/thread-redlock.ts", import.meta.url)).href,
  ): Candidate {
    const { paths } = this.nodes;
    const worker = maxBlock === undefined ? {} : { worker: { redlock, maxBlock } };
    const candidate = new Candidate(
      { paths, name: "jobs", id, maxTtl: MAX_TTL, ...LASTING, ...worker, ...own },
      { env: { LOCK_PATHS: paths.join(","), LOCK_QUARANTINE: String(own.quarantine ?? false) } },
    );
    this.#candidates.push(candidate);
    return candidate;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#candidates.map((candidate) => candidate[Symbol.asyncDispose]()));
    await this.nodes[Symbol.asyncDispose]();
  }
}

/**
 * Returns the time until which the lease lasts at least. Renewals prolong the lease, and only a release ends it
 * earlier.
 */
async function leasedUntil({ nodes }: Scene): Promise<number> {
  const nowMs = Date.now();
  // The server and the processes round differently.
  return nowMs + Number(await nodes.servers[0]?.call("PTTL", "leader:jobs")) - 5;
}

async function startScene(): Promise<Scene> {
  return new Scene(await startNodes(1));
}

// Each test waits for leases, on its own node.
describe.concurrent("renewal from a worker thread", () => {
  it("reports immediately and once that its nodes are in quarantine", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000, { quarantine: true });
    await a.next("ready");
    const { quarantineLeftMs } = await a.next("quarantined");
    expect(quarantineLeftMs).toBeGreaterThan(1);
    await a.next("elected");
    expect(a.all("quarantined").length).toBe(1);
  });

  it("keeps the lease through a block of several leases", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000);
    const { term } = await a.next("elected");
    const b = scene.start("b");
    await b.next("ready");
    a.order({ type: "block", ms: 3 * LASTING.leaseDuration });
    expect(await a.next("unblocked")).toMatchObject({ isCurrent: true });
    await expect.poll(() => a.all("worked").length).toBeGreaterThan(0);
    expect([a.all("ended"), b.all("elected")]).toEqual([[], []]);
    a.order({ type: "stop" });
    await a.next("done");
    expect((await b.next("elected")).term).toBeGreaterThan(term);
  });

  it("lets the lease expire when the event loop is blocked for longer than maxBlock", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 1_000);
    const { term } = await a.next("elected");
    const b = scene.start("b");
    await b.next("ready");
    a.order({ type: "block", ms: 10_000 });
    expect((await b.next("elected")).term).toBeGreaterThan(term);
    expect(a.all("unblocked")).toEqual([]);
    expect(await a.next("unblocked")).toMatchObject({ isCurrent: false });
    expect(await a.next("ended")).toMatchObject({ term });
    expect(a.all("worked").filter((call) => call.term === term && call.at >= (a.all("unblocked")[0]?.at ?? 0))).toEqual(
      [],
    );
  });

  it("renews while the event loop is idle, and ends with its process", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 1_000);
    await a.next("elected");
    await expect
      .poll(() => a.all("worked").length, { timeout: 20_000 })
      .toBeGreaterThan((2 * LASTING.leaseDuration) / 20 / 2);
    expect(a.all("ended")).toEqual([]);
    const end = await a.child.kill("SIGTERM");
    expect(end).toMatchObject({ code: 0 });
    expect(a.all("done").length).toBe(1);
    const b = scene.start("b");
    await b.next("elected");
  });

  it("leaves the lease to expire when a task outlasts stop()", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000, { isStubborn: true });
    await a.next("elected");
    const b = scene.start("b");
    await b.next("ready");
    const leasedMs = await leasedUntil(scene);
    a.order({ type: "stop", drainTimeout: 50 });
    await a.next("done");
    const { at } = await b.next("elected");
    expect(at).toBeGreaterThanOrEqual(leasedMs);
    await a.next("ended");
    const beside = a.all("worked").filter((call) => call.at >= at);
    expect(beside).toEqual([]);
  });

  it("ends term and run immediately when the election's own Redlock is closed, and leaves the lease to expire", async ({
    expect,
  }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000);
    await a.next("elected");
    const b = scene.start("b");
    await b.next("ready");
    const leasedMs = await leasedUntil(scene);
    a.order({ type: "closeRedlock" });
    expect(await a.next("ended")).toMatchObject({ reason: "closed" });
    expect(await a.next("failed")).toMatchObject({ code: "REDLOCK_CLOSED" });
    await a.next("done");
    expect((await b.next("elected")).at).toBeGreaterThanOrEqual(leasedMs);
  });

  it("ends a term with the reason why its lock was lost", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000);
    await a.next("elected");
    expect(await scene.nodes.redlock().forceRelease("leader:jobs")).toBe(true);
    expect(await a.next("ended")).toMatchObject({ reason: "forced" });
  });

  it("reports a failed renewal as the error that it is", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000);
    await a.next("elected");
    await scene.nodes.servers[0]?.stop();
    expect(await a.next("renewFailed")).toMatchObject({ isUnreachable: true, code: "QUORUM_UNREACHABLE" });
  });

  it("stops, and leaves the lease to expire, when the thread itself hangs", async ({ expect }) => {
    await using scene = await startScene();
    const a = scene.start("a", 60_000);
    await a.next("elected");
    const b = scene.start("b");
    await b.next("ready");
    const leasedMs = await leasedUntil(scene);
    a.order({ type: "hangThread" });
    a.order({ type: "stop" });
    await a.next("done");
    expect((await b.next("elected")).at).toBeGreaterThanOrEqual(leasedMs);
  });

  it("reports a module that cannot be loaded, and continues to try", async ({ expect }) => {
    await using scene = await startScene();
    const renewal = { worker: { redlock: new URL("support/no-such-module.js", import.meta.url), maxBlock: 1_000 } };
    await using election = new LeaderElection(scene.nodes.redlock(), { name: "broken", ...LEASE, renewal });
    const errors: unknown[] = [];
    election.on("error", (error) => errors.push(error));
    const waiting = election.campaign();
    await expect.poll(() => errors.length, { timeout: 15_000 }).toBeGreaterThan(1);
    expect(String(errors[0])).toMatch(/no-such-module|unknown file extension/i);
    await election.stop();
    await expect(waiting).rejects.toMatchObject({ code: "ELECTION_STOPPED" });
  });

  it("reports what is wrong with a module that creates no Redlock", async ({ expect }) => {
    await using scene = await startScene();
    const wrongs = {
      "export default () => ({ acquire() {} })": "whose default export made an object",
      "export default async () => undefined": "whose default export made undefined",
      "export default () => 'redis://:secret@a'": "whose default export made a string of 17 characters",
      "export default {}": "whose default export is an object",
      "export const redlock = 1": "whose default export is undefined",
      "throw new RangeError('no nodes')": "which failed: no nodes",
      "export default () => Promise.reject('no nodes')": "which failed: no nodes",
    };
    const rule = "renewal.worker.redlock must be the URL of a module whose default export makes a Redlock";
    const told = Object.entries(wrongs).map(async ([source, wrong]) => {
      const url = `data:text/javascript,${encodeURIComponent(source)}`;
      const message = `${rule} (of @x/redlock-core), got "${url}", ${wrong}`;
      expect(await scene.start("a", 60_000, {}, url).next("error")).toMatchObject({ message, lastError: message });
    });
    await Promise.all(told);
  });

  it("shares a reading of the clocks that is never later than the original reading", ({ expect }) => {
    const shared = new SharedMemory();
    shared.start = { monotonicMs: 1.9999, wallMs: 1_764_000_000_000.25, suspendedMs: 12_340 };
    const read = new SharedMemory(shared.memory).start;
    expect(read.monotonicMs).toBeLessThanOrEqual(1.9999);
    expect(read.wallMs).toBeLessThanOrEqual(1_764_000_000_000.25);
    expect(read.suspendedMs).toBe(12_340);
  });
});
