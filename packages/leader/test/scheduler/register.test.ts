/** The rules of the register on real nodes: refused writes, and full writes. */
import { type Clock, systemClock } from "@x/redlock-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Slice } from "../../src/kit/slice.ts";
import { Ledger } from "../../src/record/ledger.ts";
import { Register } from "../../src/scheduler/register.ts";
import { newestOf, RegisterStore, type Write } from "../../src/scheduler/register-store.ts";
import { type Nodes, startNodes } from "../support/redis.ts";

const DAY_MS = 86_400_000;

describe("a register", () => {
  let three: Nodes;
  let four: Nodes;
  beforeAll(async () => {
    [three, four] = await Promise.all([startNodes(3), startNodes(4)]);
  });
  afterAll(async () => {
    await Promise.all([three, four].map((nodes) => nodes[Symbol.asyncDispose]()));
  });

  let names = 0;
  const fresh = (nodes = three, clock: Clock = systemClock): RegisterStore => {
    names += 1;
    const name = `e${names}`;
    return new RegisterStore(
      new Ledger(nodes.redlock({ clock, nodeTimeout: 1_000 }), name, `leader:${name}`),
      "",
      DAY_MS,
    );
  };
  const registerOf = (
    store: RegisterStore,
    term: number,
    doubts: Error[] = [],
    isCurrent = (): boolean => true,
  ): Register => new Register({ store, term: { term, isCurrent }, onDoubt: (error) => doubts.push(error) });
  const take = (register: Register, clock: Clock = systemClock): Promise<boolean> => register.take(new Slice(clock));
  const write = async (register: Register, changes: Record<string, string>, expired?: string[]): Promise<boolean> => {
    register.begin(new Map(Object.entries(changes)), expired);
    const isTaken = await register.confirm();
    return register.hasGap ? await register.poll() : isTaken;
  };
  const hash = async (
    store: RegisterStore,
    nodes: Nodes,
    at: number,
    name = "register",
  ): Promise<Record<string, string>> => {
    const list = (await nodes.servers[at]?.call("HGETALL", store.ledger.key(name))) as string[];
    return Object.fromEntries(
      list.flatMap((field, index) => (index % 2 === 0 ? [[field, list[index + 1] ?? ""]] : [])),
    );
  };
  const fields = async (store: RegisterStore, nodes: Nodes, at: number): Promise<Record<string, string>> =>
    Object.fromEntries(Object.entries(await hash(store, nodes, at)).filter(([field]) => !field.startsWith(":")));
  const forget = async (store: RegisterStore, nodes: Nodes, at: number): Promise<unknown> =>
    await nodes.servers[at]?.call("DEL", store.ledger.key("register"));

  it("is adopted by the next term with all confirmed changes, and accepts no further step of the older term", async () => {
    const store = fresh();
    const [old, next] = [registerOf(store, 5), registerOf(store, 6)];
    expect(await take(old)).toBe(true);
    expect(await write(old, { a: "1", b: "1" })).toBe(true);
    expect(await write(old, { a: "2", b: "" })).toBe(true);
    expect(await take(next)).toBe(true);
    expect(Object.fromEntries(next.fields)).toEqual({ a: "2" });
    expect([await write(old, { a: "3" }), await old.poll(), await take(registerOf(store, 5))]).toEqual([
      false,
      false,
      false,
    ]);
    expect(await write(next, {})).toBe(true);
    for (const at of [0, 1, 2]) await expect.poll(() => hash(store, three, at)).toMatchObject({ a: "2", ":term": "6" });
  });

  it("adopts a step that two of four nodes have completely or not at all", async () => {
    for (const [first, second] of [
      [0, 1],
      [2, 3],
    ] as const) {
      const store = fresh(four);
      const old = registerOf(store, 5);
      await take(old);
      await write(old, { s: "1", "r:s@1": "1" });
      for (const at of [0, 1, 2, 3]) await expect.poll(() => fields(store, four, at)).toMatchObject({ s: "1" });
      for (const at of [first, second])
        await four.servers[at]?.call("HSET", store.ledger.key("register"), ":step", "2", "s", "2", "r:s@2", "1");
      const next = registerOf(store, 6);
      await take(next);
      await write(next, {});
      const states = [
        { s: "2", "r:s@1": "1", "r:s@2": "1" },
        { s: "1", "r:s@1": "1" },
      ];
      expect(states).toContainEqual(Object.fromEntries(next.fields));
      await next.poll();
      for (const at of [0, 1, 2, 3]) expect(await fields(store, four, at)).toEqual(Object.fromEntries(next.fields));
    }
  });

  it("is repeated unchanged until a quorum has it, even if the writer received no confirmation", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await take(register);
    await write(register, { s: "1" });
    const silent = three.servers.slice(1);
    for (const server of silent) server.freeze();
    register.begin(new Map([["s", "2"]]));
    await expect(register.confirm()).rejects.toMatchObject({ code: "QUORUM_UNREACHABLE" });
    expect(() => register.begin(new Map([["s", "3"]]))).toThrow("before the last was confirmed");
    for (const server of silent) server.thaw();
    expect(await register.confirm()).toBe(true);
    for (const at of [0, 1, 2]) await expect.poll(() => hash(store, three, at)).toMatchObject({ s: "2", ":step": "2" });
  });

  it("is written in full to a node that lost it or differs, but not by a term that is over", async () => {
    const store = fresh();
    let isCurrent = true;
    const register = registerOf(store, 5, [], () => isCurrent);
    await take(register);
    await write(register, { s: "1", other: "1" });
    const state = { s: "2", other: "1" };
    await forget(store, three, 1);
    await three.servers[2]?.call("HSET", store.ledger.key("register"), ":step", "9", ":term", "4", "stray", "1");
    expect(await write(register, { s: "2" })).toBe(true);
    for (const at of [0, 1, 2]) expect(await fields(store, three, at)).toEqual(state);
    await forget(store, three, 0);
    isCurrent = false;
    await register.poll();
    expect(await fields(store, three, 0)).toEqual({});
    isCurrent = true;
    await register.poll();
    expect(await fields(store, three, 0)).toEqual(state);
  });

  it("refuses a full write for an earlier process or another version, and an older one", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await take(register);
    await write(register, { s: "1" });
    await write(register, { s: "2" });
    const everything: Omit<Write, "gaps"> = {
      version: { term: 5, step: 1 },
      from: undefined,
      drops: [],
      fields: ["s", "1"],
    };
    await forget(store, three, 0);
    const blank = { term: 0, step: 0 };
    const named = await store.poll(5);
    for (const gaps of [
      [{ process: "0123456789", version: blank }],
      named.map(({ process }) => ({ process, version: { term: 5, step: 1 } })),
    ]) {
      await store.write({ ...everything, gaps }, () => false);
      expect([await fields(store, three, 0), await fields(store, three, 1)]).toEqual([{}, { s: "2" }]);
    }
    await store.write({ ...everything, gaps: named }, () => false);
    expect([await fields(store, three, 0), await fields(store, three, 1)]).toEqual([{ s: "1" }, { s: "2" }]);
  });

  it("is not read from nodes that may have forgotten while others may know, until a timeout that is reported", async () => {
    let aheadMs = 0;
    const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs };
    const store = fresh(three, clock);
    const old = registerOf(store, 5);
    await take(old);
    await write(old, { s: "1" });
    await expect.poll(() => fields(store, three, 2)).toEqual({ s: "1" });
    await forget(store, three, 1);
    const [knowing] = three.servers;
    knowing?.freeze();
    const doubts: Error[] = [];
    const next = registerOf(store, 6, doubts);
    await expect(take(next, clock)).rejects.toMatchObject({ code: "QUORUM_UNREACHABLE" });
    aheadMs = 6_000;
    expect(await take(next, clock)).toBe(true);
    expect([Object.fromEntries(next.fields), doubts.map(String)]).toEqual([
      { s: "1" },
      ["Error: schedules are taken over from 2 of 3 nodes, which may have forgotten"],
    ]);
    knowing?.thaw();
    const patient = registerOf(store, 7, doubts);
    expect(await take(patient, clock)).toBe(true);
    expect(doubts).toHaveLength(1);
  });

  it("counts a node that restarted with its data as one that may have forgotten, until a leader rewrites it", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await take(register);
    await write(register, { s: "1" });
    for (const at of [0, 1, 2]) await expect.poll(() => fields(store, three, at)).toEqual({ s: "1" });
    await three.servers[1]?.call("HSET", store.ledger.key("register"), ":run", "0123456789");
    const whole = async (): Promise<readonly boolean[]> =>
      (await store.poll(5)).map(({ isWhole }) => isWhole).toSorted((a, b) => Number(a) - Number(b));
    expect(await whole()).toEqual([false, true, true]);
    const next = { from: { term: 5, step: 1 }, version: { term: 5, step: 2 }, gaps: [], drops: [], fields: ["s", "2"] };
    await store.write(next, () => false);
    expect([await fields(store, three, 1), await fields(store, three, 2)]).toEqual([{ s: "1" }, { s: "2" }]);
    expect(await whole()).toEqual([false, true, true]);
    await register.poll();
    await write(register, { s: "3" });
    await register.poll();
    expect(await whole()).toEqual([true, true, true]);
  });

  it("adopts orders, and removes them from the mailboxes once a quorum has them, even if they return", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await store.order("p:s", "7 1 0", 3);
    await take(register);
    expect(register.orders).toEqual([["p:s", "7 1 0"]]);
    await write(register, { "p:s": "7 1 0" });
    expect([register.orders, await hash(store, three, 0, "mailbox")]).toEqual([[], { "p:s": "7 1 0" }]);
    expect(register.isDue).toBe(true);
    await write(register, {});
    for (const at of [0, 1, 2]) await expect.poll(() => hash(store, three, at, "mailbox")).toEqual({});
    await three.servers[0]?.call("HSET", store.ledger.key("mailbox"), "p:s", "6 1 0");
    await register.poll();
    expect([register.orders, register.isDue]).toEqual([[], true]);
    await write(register, {});
    await expect.poll(() => hash(store, three, 0, "mailbox")).toEqual({});
  });

  it("leaves an order in the mailboxes while no step contains it", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await take(register);
    await write(register, {});
    await store.order("p:s", "7 1 0", 3);
    await register.poll();
    for (const s of ["1", "2"]) await write(register, { s });
    for (const at of [0, 1, 2]) {
      await expect.poll(() => fields(store, three, at)).toEqual({ s: "2" });
      expect(await hash(store, three, at, "mailbox")).toEqual({ "p:s": "7 1 0" });
    }
    expect(register.orders).toEqual([["p:s", "7 1 0"]]);
  });

  it("leaves an order in the mailboxes while only a first step without a known quorum contains it", async () => {
    const store = fresh();
    const old = registerOf(store, 5);
    await take(old);
    await write(old, { "p:s": "7 1 0" });
    await three.servers[0]?.call("HSET", store.ledger.key("mailbox"), "p:s", "7 1 0");
    const next = registerOf(store, 6);
    await take(next);
    await next.poll();
    await write(next, {});
    expect(await hash(store, three, 0, "mailbox")).toEqual({ "p:s": "7 1 0" });
    await write(next, {});
    await expect.poll(() => hash(store, three, 0, "mailbox")).toEqual({});
  });

  it("replaces no order with an older one, and drops one that should leave no trace", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await store.order("t:x", "1 0 s", 3);
    await take(register);
    await write(register, { "p:s": "7 1 0" }, ["t:x"]);
    await expect.poll(() => hash(store, three, 0, "mailbox")).toEqual({});
    expect(await store.order("p:s", "6 0 9", 3)).toEqual(["7 1 0", "7 1 0", "7 1 0"]);
    expect(await store.order("p:s", "7 0 9", 3)).toEqual(["7 1 0", "7 1 0", "7 1 0"]);
    expect(await store.order("p:s", "", 3)).toEqual(["7 1 0", "7 1 0", "7 1 0"]);
    expect(await store.order("p:s", "8 0 9", 3)).toEqual(["8 0 9", "8 0 9", "8 0 9"]);
  });

  it("does not mistake a late step of an earlier scheduler in its term for its own", async () => {
    const store = fresh();
    const first = registerOf(store, 5);
    await take(first);
    await write(first, { s: "1" });
    const second = registerOf(store, 5);
    await take(second);
    const late = { from: { term: 5, step: 1 }, version: { term: 5, step: 2 }, gaps: [], drops: [] };
    await store.write({ ...late, fields: ["s", "late"] }, () => false);
    await write(second, { s: "own" });
    await second.poll();
    for (const at of [0, 1, 2]) expect(await fields(store, three, at)).toEqual({ s: "own" });
  });

  it("is readable without a promise, and expires when no leader exists for a long time", async () => {
    const store = fresh();
    const register = registerOf(store, 5);
    await store.order("p:s", "7 1 0", 3);
    await take(register);
    await write(register, { s: "1" });
    expect([...newestOf(await store.look()).fields]).toContainEqual(["s", "1"]);
    expect(await write(register, { s: "2" })).toBe(true);
    for (const name of ["register", "mailbox"])
      await expect.poll(() => three.servers[0]?.call("PTTL", store.ledger.key(name))).toBeGreaterThan(DAY_MS - 60_000);
  });
});
