/** What the scripts beside the lock store and refuse, on real nodes. */
import { type Lock, LockHeldError, type Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Ledger } from "../src/record/ledger.ts";
import { claimOf, heldNow, type TermRecord } from "../src/record/record.ts";
import { type Claim, TickStore } from "../src/scheduler/store.ts";
import { type Nodes, startNodes } from "./support/redis.ts";

const DAY_MS = 86_400_000;
const record = (term: number): TermRecord => ({ term, id: `id${term}`, instance: `i${term}`, sinceMs: 1 });

describe("beside the lock", () => {
  let nodes: Nodes;
  let redlock: Redlock;
  beforeAll(async () => {
    nodes = await startNodes(3);
    redlock = nodes.redlock();
  });
  afterAll(async () => {
    await nodes[Symbol.asyncDispose]();
  });

  const ledgerOf = (name: string): Ledger => new Ledger(redlock, name, `leader:${name}`);
  const write = (
    ledger: Ledger,
    term: number,
    more: { revision?: number; ended?: boolean } = {},
  ): ReturnType<Ledger["write"]> =>
    ledger.write({
      record: record(term),
      revision: more.revision ?? 0,
      token: `token${term}`,
      ended: more.ended ?? false,
    });
  const claim = (name: string, atMs: number, mode: Claim["mode"] = "once"): Claim => ({
    name,
    atMs,
    lastMs: atMs,
    missed: 0,
    mode,
    attempt: 1,
  });

  it("refuses the record of an older term", async () => {
    const ledger = ledgerOf("older");
    expect(await write(ledger, 20)).toMatchObject({ outcome: "written" });
    expect(await write(ledger, 19)).toMatchObject({ outcome: "stale" });
    const [view] = await ledger.read(0);
    expect(view).toMatchObject({ term: 20, terms: [{ term: 20 }] });
  });

  it("knows whose the lock is from the grant on, as long as the lease; one that is refused changes nothing", async () => {
    const ledger = ledgerOf("grant");
    const claim = (id: string): string => claimOf({ id, instance: `${id}#1`, value: "here" });
    const take = (id: string): Promise<Lock> =>
      protocolOf(redlock).acquire("leader:grant", { ttl: 2_000, timeout: 0 }, claim(id));
    const lock = await take("a");
    await expect(take("b")).rejects.toThrow(LockHeldError);
    const held = heldNow(await ledger.look(0), ledger.quorum);
    expect(held).toMatchObject({ record: { id: "a", instance: "a#1", value: "here", term: lock.fencingToken } });
    for (const server of nodes.servers) {
      expect(await server.call("PTTL", ledger.key("note"))).toBeGreaterThan(0);
      expect(await server.call("PTTL", ledger.key("note"))).toBeLessThanOrEqual(2_000);
    }
    await lock.release();
    expect(heldNow(await ledger.look(1), ledger.quorum)).toBeUndefined();
    expect((await ledger.read(0))[0]).toMatchObject({ term: 0, terms: [] });
  });

  it("keeps a clean end that a late renewal would undo, and a value that an older write would", async () => {
    const ledger = ledgerOf("ended");
    await write(ledger, 5, { revision: 2 });
    await write(ledger, 5, { revision: 1, ended: true });
    await write(ledger, 5, { revision: 2 });
    const [view] = await ledger.read(0);
    expect(view).toMatchObject({ term: 5, revision: 2, ended: true });
  });

  it("remembers the last thousand terms, exactly and in order", async () => {
    const ledger = ledgerOf("history");
    const first = 2 ** 53 - 2_000;
    for (let term = first; term < first + 1_010; term += 1) await write(ledger, term);
    const [view] = await ledger.read(0);
    expect(view?.terms.map((each) => each.term)).toEqual(
      Array.from({ length: 1_000 }, (_, index) => first + 10 + index),
    );
    const [later] = await ledger.read(first + 1_007);
    expect(later?.terms.map((each) => each.term)).toEqual([first + 1_008, first + 1_009]);
  });

  it("lets every key expire", async () => {
    const ledger = ledgerOf("expiry");
    const store = new TickStore(ledger, "", DAY_MS);
    await write(ledger, 1);
    await ledger.requestResign(1, 1_000);
    await store.claim(1, [claim("s", 5, "least")], true);
    await store.setPaused({ name: "s", isPaused: true, nowMs: 1, isPausedAtFirst: false });
    await store.request("r", "s", 5);
    const [server] = nodes.servers;
    const keys = (await server?.call("KEYS", "{leader:expiry}:*")) as string[];
    expect(keys.map((key) => key.slice(key.lastIndexOf(":") + 1)).toSorted()).toEqual([
      "leader",
      "paused",
      "request",
      "requests",
      "running",
      "terms",
      "ticks",
    ]);
    for (const key of keys) expect(await server?.call("PTTL", key)).toBeGreaterThan(0);
  });

  it("refuses a claim, an end and a read of an older term", async () => {
    const ledger = ledgerOf("fence");
    const store = new TickStore(ledger, "", DAY_MS);
    await write(ledger, 5);
    expect(await store.claim(5, [claim("s", 100)])).toMatchObject({ isStale: false, outcomes: [{ kind: "claimed" }] });
    await write(ledger, 6);
    expect(await store.claim(5, [claim("s", 200)])).toMatchObject({ isStale: true });
    expect(await store.finish(5, [{ name: "s", atMs: 100 }])).toBe(false);
    expect(await store.take(5, ["r"])).toBe(false);
    expect((await store.read(5, true)).isStale).toBe(true);
  });

  it("claims a tick again for the term that has claimed it, and for no older tick of another", async () => {
    const ledger = ledgerOf("again");
    const store = new TickStore(ledger, "", DAY_MS);
    await write(ledger, 5);
    await store.claim(5, [claim("s", 100)], true);
    await store.claim(5, [claim("s", 200)]);
    expect((await store.claim(5, [claim("s", 200), claim("s", 100)])).outcomes).toEqual([
      { kind: "claimed" },
      { kind: "claimed" },
    ]);
    await write(ledger, 6);
    expect((await store.claim(6, [claim("s", 100), claim("s", 200), claim("s", 300)])).outcomes).toEqual([
      { kind: "taken", accountedMs: 200 },
      { kind: "claimed" },
      { kind: "claimed" },
    ]);
    const state = await store.read(6, true);
    expect(state.schedules.get("s")).toMatchObject({ accountedMs: 300, lastMs: 300 });
  });

  it("gives a new leader what an older one began and did not finish", async () => {
    const ledger = ledgerOf("pending");
    const store = new TickStore(ledger, "", DAY_MS);
    await write(ledger, 5);
    await store.claim(5, [claim("a", 100, "least"), claim("b", 100, "least"), claim("c", 100)], true);
    await store.finish(5, [{ name: "b", atMs: 100 }]);
    await write(ledger, 6);
    expect((await store.read(6, true)).pending).toEqual([{ name: "a", atMs: 100, term: 5, attempt: 1 }]);
    await store.claim(6, [{ ...claim("a", 100, "hold"), attempt: 2 }]);
    expect((await store.read(6, true)).pending).toEqual([]);
    await write(ledger, 7);
    expect((await store.read(7, true)).pending).toEqual([{ name: "a", atMs: 100, term: 6, attempt: 2 }]);
  });

  it("does not take a tick as dealt with that only one of three nodes has, once all have answered", async () => {
    const ledger = ledgerOf("minority");
    const store = new TickStore(ledger, "", DAY_MS);
    await write(ledger, 5);
    await store.claim(5, [claim("s", 100)], true);
    await nodes.servers[0]?.call("HSET", ledger.key("ticks"), "s", "200 5 200 0");
    await write(ledger, 6);
    expect((await store.read(6, true)).schedules.get("s")).toMatchObject({ accountedMs: 100 });
    await nodes.servers[1]?.call("HSET", ledger.key("ticks"), "s", "200 5 200 0");
    expect((await store.read(6, true)).schedules.get("s")).toMatchObject({ accountedMs: 200 });
  });

  it("takes a tick as dealt with that one node has when another has lost its data: it may have been on two", async () => {
    const ledger = ledgerOf("lost");
    const store = new TickStore(ledger, "", DAY_MS);
    await write(ledger, 5);
    await store.claim(5, [claim("s", 100)], true);
    await nodes.servers[0]?.call("HSET", ledger.key("ticks"), "s", "200 5 200 0");
    await nodes.servers[1]?.call("DEL", ledger.key("ticks"));
    await write(ledger, 6);
    expect(await store.read(6, true)).toMatchObject({ sawBlank: true });
    expect((await store.read(6, true)).schedules.get("s")).toMatchObject({ accountedMs: 200 });
  });

  it("lets the later of two orders win, whatever the clocks say, and a restored one over none", async () => {
    const ledger = ledgerOf("orders");
    const store = new TickStore(ledger, "", DAY_MS);
    const order = { name: "s", isPausedAtFirst: false };
    const paused = { version: 21, isPaused: true, resumedMs: 0 };
    await store.setPaused({ ...order, isPaused: false, nowMs: 20 });
    await store.setPaused({ ...order, isPaused: true, nowMs: 10 });
    expect((await store.read(undefined, true)).paused.get("s")).toEqual(paused);
    await store.restorePause("s", { version: 20, isPaused: false, resumedMs: 9 });
    await store.restorePause("s", { version: 21, isPaused: false, resumedMs: 9 });
    expect((await store.read(undefined, true)).paused.get("s")).toEqual(paused);
    await write(ledger, 5);
    expect(await store.claim(5, [claim("s", 100)])).toMatchObject({ outcomes: [{ kind: "paused" }] });
  });

  it("notes when a pause ended, and keeps that when there is none to end", async () => {
    const store = new TickStore(ledgerOf("resumed"), "", DAY_MS);
    const moments: unknown[] = [];
    for (const [name, isPaused, nowMs] of [
      ["s", false, 10],
      ["s", true, 20],
      ["s", false, 31],
      ["s", false, 40],
      ["off", false, 50],
    ] as const) {
      await store.setPaused({ name, isPaused, nowMs, isPausedAtFirst: name === "off" });
      moments.push((await store.read(undefined, true)).paused.get(name)?.resumedMs);
    }
    expect(moments).toEqual([0, 0, 31, 31, 50]);
  });
});
