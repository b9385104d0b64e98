import { errorOf } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { LockHeldError, QuorumUnreachableError } from "../src/index.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";

const facts = { resources: ["r"], nodeCount: 1, quorum: 1, attempts: 1, elapsedMs: 5 };
const held = (holderTtlMs: number, votesAgeMs?: number): string =>
  new LockHeldError({
    ...facts,
    votes: [{ node: "a:1", vote: "held", tookMs: 1, resource: "r", holderTtlMs }],
    ...(votesAgeMs !== undefined && { votesAgeMs }),
  }).message;

describe("a LockHeldError", () => {
  it("says for how long the holder still has the lock", () => {
    const rest = ": 0 of 1 nodes granted, 1 needed (1 attempt, 5 ms)";
    expect(held(25_506)).toBe(`lock "r" is held by another, for 25.5 s more unless extended${rest}`);
    expect(held(25_506, 25_000)).toBe(`lock "r" is held by another, for 506 ms more unless extended${rest}`);
    expect(held(25_506, 26_000)).toBe(`lock "r" is held by another${rest}`);
  });
});

describe("a QuorumUnreachableError", () => {
  it("says once why a node did not answer, and has no cause that says it again", () => {
    const votes = [{ node: "a:1", vote: "failed", tookMs: 1, error: "no answer for 5 ms" }] as const;
    const error = new QuorumUnreachableError({ ...facts, votes });
    expect(error.message.split("no answer for 5 ms")).toHaveLength(2);
    expect(error).not.toHaveProperty("cause");
  });
});

describe("the stack of an error", () => {
  it("has the caller, however the lock was asked for", async () => {
    const [server] = await startNodes(1);
    if (server === undefined) throw new Error("expected a node");
    const [holder, redlock] = [openRedlock([server]), openRedlock([server])];
    await using _lock = await holder.acquire("r");
    const unreachable = openRedlock(["redis://127.0.0.1:1"], { nodeTimeout: 50 });
    async function chargeHandler(work: () => Promise<unknown>): Promise<void> {
      await work();
    }
    const calls = [
      () => redlock.acquire("r", { timeout: 0 }),
      () => redlock.acquire("r", { timeout: 20 }),
      () => redlock.using("r", () => undefined, { timeout: 0 }),
      () => redlock.using("r", () => undefined, { timeout: 0, reentrancy: "wait" }),
      () => unreachable.acquire("r", { timeout: 0 }),
      () => unreachable.tryAcquire("r"),
    ];
    for (const call of calls) {
      const { name, stack } = (await errorOf(chargeHandler(call))) as Error;
      expect(stack).toMatch(new RegExp(`^${name}: lock "r"[^]*chargeHandler`));
    }
  });

  it("is left alone if it is the caller's own reason", async () => {
    const redlock = openRedlock(await startNodes(1));
    const reason = new LockHeldError({ ...facts, votes: [] });
    const { stack } = reason;
    expect(await errorOf(redlock.acquire("r", { signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(reason.stack).toBe(stack);
  });
});
