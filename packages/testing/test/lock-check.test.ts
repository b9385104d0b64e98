import { Redlock } from "@x/redlock-core";
import { systemRandom } from "@x/redlock-core/kit";
import { defineScript, protocolOf } from "@x/redlock-core/protocol";
import { placesOf } from "@x/test-support";
import { type LockCheck, LockViolationError, memoryNodes, VirtualClock } from "@x/testing";
import { afterEach, beforeEach, expect, it } from "vitest";

let clock: VirtualClock;
let check: LockCheck;

beforeEach(() => {
  clock = new VirtualClock();
  check = clock.checkLocks();
});

afterEach(() => check.stop());

it("finds two holders of one lock, where nodes lose it and quarantine is off", async () => {
  const nodes = memoryNodes(3, { clock });
  const other = clock.process("other");
  const [one, two] = [
    new Redlock(nodes, { clock, quarantine: false }),
    new Redlock(memoryNodes(nodes, { clock: other }), { clock: other, quarantine: false }),
  ];
  await one.acquire("a");
  check.verify();
  for (const node of nodes) node.flush();
  await expect(clock.until(two.acquire("a"))).rejects.toMatchObject({
    name: "LockViolationError",
    invariant: expect.stringMatching(/exclusion|token order/) as unknown,
  });
  expect(() => check.verify()).toThrow(LockViolationError);
  expect(check.grants).toBe(2);
});

it("shows no token of a lock in a violation, nor in a node's refusal", async () => {
  const nodes = memoryNodes(3, { clock });
  const other = clock.process("other");
  const two = new Redlock(memoryNodes(nodes, { clock: other }), { clock: other, quarantine: false });
  const one = new Redlock(nodes, { clock, quarantine: false });
  await one.acquire("a");
  const protocol = protocolOf(one);
  const ask = async (source: string) =>
    await clock.until(protocol.run(defineScript("ask", source), { keys: [protocol.keys.lockKey("a")], args: [] }));
  const [told] = await ask("return redis.call('GET', KEYS[1])");
  const token = told?.ok === true ? String(told.value) : "";
  const refused = await ask("return redis.call('HGET', KEYS[1], redis.call('GET', KEYS[1]))");
  expect(refused[0]?.ok).toBe(false);
  for (const node of nodes) node.flush();
  const violation: unknown = await clock.until(two.acquire("a")).catch((error: unknown) => error);
  expect(violation).toBeInstanceOf(LockViolationError);
  expect(await placesOf(token, [violation, refused])).toEqual([]);
});

it("finds an action of a holder after the end of its lock", async () => {
  const redlock = new Redlock(memoryNodes(1, { clock }), { clock, ttl: 1_000 });
  const lock = await redlock.acquire("a");
  check.acted("a", lock.fencingToken);
  await clock.advance(500);
  check.acted("a", lock.fencingToken);
  check.verify();
  await clock.advance(600);
  check.acted("a", lock.fencingToken);
  expect(() => check.verify()).toThrow("main acted on a when its lock");
  await expect(clock.advance(1)).rejects.toThrow("acted without the lock, after 1100 ms");
});

it("finds an action with a token that was never granted", async () => {
  const redlock = new Redlock(memoryNodes(1, { clock }), { clock });
  const lock = await redlock.acquire("a");
  check.acted("b", lock.fencingToken);
  expect(() => check.verify()).toThrow(`nobody was granted b with fencing token ${lock.fencingToken}`);
});

it("distinguishes two locks with equal fencing tokens", async () => {
  const random = { ...systemRandom, fraction: () => 0 };
  const sets = [memoryNodes(1, { clock }), memoryNodes(1, { clock })];
  const [one, two] = sets.map((nodes) => new Redlock(nodes, { clock, random }));
  const [a, b] = [await one?.acquire("a"), await two?.acquire("b")];
  expect(a?.fencingToken).toBe(b?.fencingToken);
  check.acted("a", a?.fencingToken ?? 0);
  check.acted("b", b?.fencingToken ?? 0);
  check.verify();
});

it("counts only the locks of its clock, and no locks after its stop", async () => {
  const elsewhere = new VirtualClock();
  await new Redlock(memoryNodes(1, { clock: elsewhere }), { clock: elsewhere }).acquire("a");
  const redlock = new Redlock(memoryNodes(1, { clock }), { clock });
  await redlock.using("b", async () => {});
  expect(check.grants).toBe(1);
  check.stop();
  await redlock.acquire("c");
  expect(check.grants).toBe(1);
});

it("checks many turns of two correct processes without a finding", async () => {
  const nodes = memoryNodes(3, { clock, latency: 2 });
  const balance = { value: 0, writes: 0 };
  const work = async (name: string): Promise<void> => {
    const process = clock.process(name);
    const locks = new Redlock(memoryNodes(nodes, { clock: process, latency: 2 }), { clock: process, ttl: 1_000 });
    for (let round = 0; round < 20; round += 1) {
      await locks.using(
        "account",
        async (lock) => {
          const { value } = balance;
          await process.sleep(50, { signal: lock.signal });
          check.acted("account", lock.fencingToken);
          balance.value = value + 1;
        },
        { timeout: 600_000 },
      );
    }
    await locks.close();
  };
  const done = Promise.all([work("one"), work("two")]);
  await clock.advance(500);
  nodes[0]?.crash();
  await clock.advance(500);
  nodes[0]?.restart({ empty: true });
  await clock.until(done, { within: 600_000 });
  check.verify();
  expect(balance.value).toBe(40);
  expect(check.grants).toBe(40);
});
