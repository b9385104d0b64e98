import { errorOf } from "@x/test-support";
import { Redis } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";
import { LockHeldError, type LockNode, QuorumUnreachableError } from "../src/index.ts";
import { everyNodeAnswers, openRedlock, startNodes } from "./support/nodes.ts";

const facts = { resources: ["r"], nodeCount: 1, quorum: 1, attempts: 1, elapsedMs: 5 };
const held = (holderTtlMs: number, votesAgeMs?: number): string =>
  new LockHeldError({
    ...facts,
    votes: [{ node: "a:1", vote: "held", tookMs: 1, resource: "r", holderTtlMs }],
    ...(votesAgeMs !== undefined && { votesAgeMs }),
  }).message;

/** Calls until the lock is refused. A loaded machine may answer too late for a short timeout. */
async function heldError(acquire: () => Promise<unknown>): Promise<LockHeldError> {
  let error: unknown;
  do error = await errorOf(acquire());
  while (error instanceof QuorumUnreachableError);
  if (!(error instanceof LockHeldError)) throw new Error(`expected a LockHeldError, got ${String(error)}`);
  return error;
}

describe("a LockHeldError", () => {
  it("names the time for which the holder still has the lock", () => {
    const rest = ": 0 of 1 nodes granted, 1 needed (1 attempt, 5 ms)";
    expect(held(25_506)).toBe(`lock "r" is held by another, for 25.5 s more unless extended${rest}`);
    expect(held(25_506, 25_000)).toBe(`lock "r" is held by another, for 506 ms more unless extended${rest}`);
    expect(held(25_506, 26_000)).toBe(`lock "r" is held by another${rest}`);
  });

  it("names the holder of the lock to a call that has waited", async () => {
    const servers = await startNodes(3);
    const [named, nameless, redlock] = [
      openRedlock(servers, { name: "billing-api 1" }),
      openRedlock(servers),
      openRedlock(servers),
    ];
    await everyNodeAnswers(named);
    await using _named = await named.acquire("r");
    await using _nameless = await nameless.acquire("s");
    const failed = (resource: string, timeout = 300): Promise<LockHeldError> =>
      heldError(() => redlock.acquire(resource, { timeout }));
    // No node knows the name any more.
    await everyNodeAnswers(named);
    const token = String(await servers[0]?.call("GET", "r"));
    const key = `{x}:client:${token.slice(1, 13)}`;
    for (const server of servers) await server.call("DEL", key);
    expect(await failed("r")).toMatchObject({ holder: undefined, message: expect.stringContaining("held by another") });
    // It is enough that one node knows the name.
    await servers[2]?.call("SET", key, "billing-api 1");
    expect((await failed("r", 0)).holder).toBeUndefined();
    const error = await failed("r");
    expect(error.holder).toBe("billing-api 1");
    expect(error.message).toMatch(
      /^lock "r" is held by billing-api 1, for [0-9.]+ s more unless extended: 0 of 3 nodes granted, 2 needed/,
    );
    expect(error.votes.filter(({ error }) => error !== undefined)).toEqual([]);
    expect(await redlock.tryAcquire("r")).toBeNull();
    expect(await failed("s")).toMatchObject({ holder: undefined, message: expect.stringContaining("held by another") });
    const own = await heldError(() => named.acquire(["r", "t"], { timeout: 20 }));
    expect(own).toMatchObject({ holder: undefined, message: expect.stringContaining("held by this process") });
    // The name is not looked up twice.
    await servers[2]?.call("DEL", key);
    expect((await failed("r")).holder).toBe("billing-api 1");
  });

  it("leaves out the holder's name if the caller cancels or closes while the nodes are asked for it", async () => {
    const [server] = await startNodes(1);
    if (server === undefined) throw new Error("expected a node");
    const client = new Redis({ path: server.path });
    onTestFinished(() => client.disconnect());
    await using _lock = await openRedlock([server], { name: "billing-api 1" }).acquire("r");
    const asked: (() => void)[] = [];
    const answers: ((names: string[]) => void)[] = [];
    const silent = (): LockNode => ({
      name: "mine",
      state: "ready",
      eval: (script, keys, args) => {
        if (script.name !== "read-client-names") return client.eval(script.source, keys.length, ...keys, ...args);
        asked.shift()?.();
        return new Promise((resolve) => answers.push(resolve));
      },
      onStateChange: () => () => undefined,
      close: () => Promise.resolve(),
    });
    const [cancelled, closed] = [
      openRedlock([silent()], { nodeTimeout: 60_000 }),
      openRedlock([silent()], { nodeTimeout: 60_000 }),
    ];
    const controller = new AbortController();
    asked.push(
      () => controller.abort(),
      () => void closed.close(),
    );
    const { signal } = controller;
    expect((await heldError(() => cancelled.acquire("r", { timeout: 20, signal }))).holder).toBeUndefined();
    expect((await heldError(() => closed.acquire("r", { timeout: 20 }))).holder).toBeUndefined();
    expect(asked).toEqual([]);
    for (const answer of answers) answer(["billing-api 1"]);
  });
});

describe("a QuorumUnreachableError", () => {
  it("names once why a node did not answer, and has no cause that repeats it", () => {
    const votes = [{ node: "a:1", vote: "failed", tookMs: 1, error: "no answer for 5 ms" }] as const;
    const error = new QuorumUnreachableError({ ...facts, votes });
    expect(error.message.split("no answer for 5 ms")).toHaveLength(2);
    expect(error).not.toHaveProperty("cause");
  });
});

describe("the stack of an error", () => {
  it("contains the caller, whichever method acquired the lock", async () => {
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

  it("is unchanged if the error is the caller's own reason", async () => {
    const redlock = openRedlock(await startNodes(1));
    const reason = new LockHeldError({ ...facts, votes: [] });
    const { stack } = reason;
    expect(await errorOf(redlock.acquire("r", { signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(reason.stack).toBe(stack);
  });
});
