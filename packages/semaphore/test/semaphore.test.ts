/** The promises of a semaphore on a real node. */
import { tracingChannel } from "node:diagnostics_channel";
import {
  LockHeldError,
  LockLostError,
  type LockNode,
  QuorumUnreachableError,
  Redlock,
  RedlockClosedError,
  type RedlockOptions,
  ReentrancyError,
} from "@x/redlock-core";
import { errorOf, ManualClock, type RedisServer, startProxy, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";
import { Semaphore } from "../src/index.ts";
import { aName, openRedlock, useServer } from "./support/redlock.ts";

const server = useServer();

/** The same semaphore in two processes. */
function twoOf(permits: number): readonly [Semaphore, Semaphore] {
  const name = aName();
  const [a, b] = [openRedlock(server()), openRedlock(server())];
  return [new Semaphore(a, name, { permits }), new Semaphore(b, name, { permits })];
}

/** A client for an operator's commands to a node. */
function commands(node: RedisServer): Redis {
  const client = new Redis({ path: node.path });
  onTestFinished(() => client.disconnect());
  return client;
}

/** A node whose connection breaks after it has executed a request, and which stays down while `fault` is set. */
function failingNode(node: RedisServer): LockNode & { fault: "unanswered" | "down" | undefined; refused: number } {
  const client = commands(node);
  return {
    name: "failing",
    state: "ready",
    fault: undefined,
    refused: 0,
    async eval(script, keys, args) {
      if (this.fault === "down") {
        this.refused += 1;
        throw new Error("not connected");
      }
      const reply = await client.eval(script.source, keys.length, ...keys, ...args);
      if (this.fault === undefined) return reply;
      this.fault = "down";
      throw new Error("the connection broke");
    },
    onStateChange: () => () => undefined,
    close: async () => undefined,
  };
}

/** The arguments of one request: ARGV of permits.lua.ts. */
interface Request {
  readonly operation: string;
  readonly holder: string;
  readonly waiter: string;
}

/**
 * Opens a `Redlock` whose requests are recorded. `before` is called with each request, and may throw for a lost
 * connection. `after` is called when the answer has arrived.
 */
function openRecorded(
  node: RedisServer,
  {
    before = () => undefined,
    after = () => undefined,
  }: { readonly before?: (request: Request) => void; readonly after?: (request: Request) => void } = {},
  options: RedlockOptions = {},
): { readonly redlock: Redlock; readonly requests: readonly Request[] } {
  const [client, subscriber] = [commands(node), commands(node)];
  const requests: Request[] = [];
  const recorded: LockNode = {
    name: "recorded",
    state: "ready",
    async eval(script, keys, args) {
      const [operation = "", , , , holder = "", , waiter = ""] = args;
      const request = { operation, holder, waiter };
      before(request);
      requests.push(request);
      const reply = await client.eval(script.source, keys.length, ...keys, ...args);
      after(request);
      return reply;
    },
    async subscribe(channel, listener) {
      subscriber.on("message", (_channel: string, message: string) => listener(message));
      await subscriber.subscribe(channel);
      return () => undefined;
    },
    onStateChange: () => () => undefined,
    close: async () => undefined,
  };
  const redlock = new Redlock([recorded], { nodeTimeout: 10_000, timeout: 60_000, quarantine: false, ...options });
  onTestFinished(() => redlock.close());
  return { redlock, requests };
}

function afterMicrotasks(count: number, run: () => void): void {
  if (count === 0) run();
  else queueMicrotask(() => afterMicrotasks(count - 1, run));
}

async function startNode(): Promise<RedisServer> {
  const node = await startRedis();
  onTestFinished(() => node.stop());
  return node;
}

async function untilWaiting(semaphore: Semaphore, waiting: number): Promise<void> {
  await expect.poll(async () => (await semaphore.inspect()).waiting, { timeout: 20_000 }).toBe(waiting);
}

describe("permits", () => {
  it("are held up to the limit, across all processes together", async () => {
    const [here, there] = twoOf(2);
    const held = [await here.acquire(), await there.acquire()];
    expect(await here.tryAcquire()).toBeNull();
    expect(await there.tryAcquire()).toBeNull();
    await held[0]?.release();
    const next = await there.tryAcquire();
    expect(next?.isHeld()).toBe(true);
    expect(await here.inspect()).toMatchObject({ permits: 2, used: 2, waiting: 0 });
  });

  it("are acquired all or none by a caller that requests several", async () => {
    const [semaphore] = twoOf(3);
    const two = await semaphore.acquire({ permits: 2 });
    expect(await semaphore.tryAcquire({ permits: 2 })).toBeNull();
    const one = await semaphore.tryAcquire({ permits: 1 });
    expect((await semaphore.inspect()).used).toBe(3);
    await Promise.all([two.release(), one?.release()]);
    expect((await semaphore.inspect()).used).toBe(0);
  });

  it("have fencing tokens that increase from grant to grant", async () => {
    const [here, there] = twoOf(3);
    const tokens: number[] = [];
    for (const each of [here, there, here, there]) {
      await using permit = await each.acquire();
      tokens.push(permit.fencingToken);
    }
    const many = await Promise.all([here.acquire(), there.acquire(), here.acquire()]);
    const last = many.map(({ fencingToken }) => fencingToken).toSorted((a, b) => a - b);
    expect(new Set(last).size).toBe(3);
    expect([...tokens, ...last]).toEqual([...tokens, ...last].toSorted((a, b) => a - b));
    expect((await here.inspect()).fencingToken).toBe(last.at(-1));
  });

  it("expire with a dead holder, and are granted to the next waiter", async () => {
    const [here, there] = twoOf(1);
    const crashed = await here.acquire({ ttl: 300 });
    const next = await there.acquire();
    expect(next.fencingToken).toBeGreaterThan(crashed.fencingToken);
    expect(crashed.isHeld()).toBe(false);
    expect(await crashed.release()).toBe(false);
    expect(next.isHeld()).toBe(true);
  });

  it("are extended in using(), beyond their first lease", async () => {
    const [here, there] = twoOf(1);
    await here.using(
      async (permit) => {
        const first = permit.remaining();
        await expect.poll(() => permit.remaining(), { timeout: 20_000 }).toBeLessThan(first - 100);
        await expect.poll(() => permit.remaining(), { timeout: 20_000 }).toBeGreaterThan(first - 100);
        expect(await there.tryAcquire()).toBeNull();
      },
      { ttl: 4_500 },
    );
    expect((await there.tryAcquire())?.isHeld()).toBe(true);
  });

  it("are not extended in using() if the call says so", async () => {
    const [here] = twoOf(1);
    const isLost = await here.using(
      async ({ signal }) => {
        await expect.poll(() => signal.aborted, { timeout: 20_000 }).toBe(true);
        return signal.aborted;
      },
      { ttl: 500, autoExtend: false },
    );
    expect(isLost).toBe(true);
  });

  it("abort their signal with the reason when they are lost", async () => {
    const [semaphore] = twoOf(1);
    const permit = await semaphore.acquire({ ttl: 200 });
    await expect.poll(() => permit.signal.aborted, { timeout: 20_000 }).toBe(true);
    expect(permit.signal.reason).toBeInstanceOf(LockLostError);
    expect(() => permit.assertHeld()).toThrow(/is lost \(expired\)/);
  });

  it("are released when the Redlock is closed", async () => {
    const name = aName();
    const closing = openRedlock(server());
    const permit = await new Semaphore(closing, name, { permits: 1 }).acquire();
    const other = new Semaphore(openRedlock(server()), name, { permits: 1 });
    const { signal } = permit;
    await closing.close();
    expect(signal.aborted).toBe(true);
    expect((await other.tryAcquire())?.isHeld()).toBe(true);
  });

  it("are released if an inspection is the first to see that their lease has expired", async () => {
    const name = aName();
    const semaphore = new Semaphore(openRedlock(server()), name, { permits: 2 });
    const living = await semaphore.acquire({ ttl: 60_000 });
    const node = failingNode(server());
    const dying = new Redlock([node], { nodeTimeout: 10_000 });
    onTestFinished(() => dying.close());
    expect(await new Semaphore(dying, name, { permits: 2 }).tryAcquire({ ttl: 2_000 })).not.toBeNull();
    node.fault = "down";
    await expect.poll(async () => (await semaphore.inspect()).used, { timeout: 20_000 }).toBe(1);
    expect((await semaphore.inspect()).holders).toHaveLength(1);
    expect(await semaphore.tryAcquire()).not.toBeNull();
    expect(living.isHeld()).toBe(true);
  });

  it("are released if the connection breaks during the call, however late it is restored", async () => {
    const name = aName();
    const node = failingNode(server());
    const redlock = new Redlock([node], { nodeTimeout: 10_000, maxTtl: 600_000 });
    onTestFinished(() => redlock.close());
    const broken = new Semaphore(redlock, name, { permits: 1 });
    const other = new Semaphore(openRedlock(server()), name, { permits: 1 });
    node.fault = "unanswered";
    await expect(broken.tryAcquire({ ttl: 600_000 })).rejects.toThrow(QuorumUnreachableError);
    await expect.poll(() => node.refused, { timeout: 20_000 }).toBeGreaterThan(1);
    expect((await other.inspect()).used).toBe(1);
    node.fault = undefined;
    await expect.poll(async () => (await other.inspect()).used, { timeout: 20_000 }).toBe(0);
  });

  it("are extended manually, and never shortened", async () => {
    const [semaphore] = twoOf(1);
    const permit = await semaphore.acquire({ ttl: 10_000 });
    await permit.extend(50_000);
    const longer = permit.remaining();
    expect(longer).toBeGreaterThan(10_000);
    await permit.extend(1_000);
    expect(permit.remaining()).toBeGreaterThan(10_000);
    expect((await semaphore.inspect()).holders[0]?.remainingMs).toBeGreaterThan(10_000);
  });
});

describe("a using() call inside using()", () => {
  const patient = { timeout: Number.POSITIVE_INFINITY };

  it("is refused immediately for the same semaphore, even if a permit is free", async () => {
    const redlock = openRedlock(server());
    const name = aName();
    const nested = new Semaphore(redlock, name, { permits: 2 });
    await new Semaphore(redlock, name, { permits: 2 }).using(async () => {
      await new Semaphore(redlock, aName(), { permits: 1 }).using(async () => {
        const error = await nested.using(() => expect.unreachable(), patient).catch((thrown: unknown) => thrown);
        expect(error).toBeInstanceOf(ReentrancyError);
        expect(error).toMatchObject({ resource: name, resources: [name] });
        expect(String(error)).toContain(`semaphore "${name}" is held by the using() around this one`);
      });
      expect((await nested.inspect()).used).toBe(1);
    });
  });

  it("is not refused if the outer call has ended, or its permit was released", async () => {
    const [semaphore] = twoOf(1);
    let later: Promise<string> = Promise.resolve("");
    let open = (): void => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    await semaphore.using(async () => {
      later = opened.then(async () => await semaphore.using(() => "later", patient));
    });
    open();
    expect(await later).toBe("later");
    const again = await semaphore.using(async (lock) => {
      await lock.release();
      return await semaphore.using(() => "again", patient);
    });
    expect(again).toBe("again");
  });

  it('is an ordinary call with reentrancy: "wait", and so is an acquire() inside', async () => {
    const redlock = openRedlock(server(), { reentrancy: "wait" });
    const semaphore = new Semaphore(redlock, aName(), { permits: 2 });
    expect(await semaphore.using(async () => await semaphore.using(() => "both"))).toBe("both");
    const [other] = twoOf(1);
    await other.using(async () => expect(await other.tryAcquire()).toBeNull());
  });
});

describe("waiters", () => {
  it("are served first come, first served, across processes", async () => {
    const [here] = twoOf(1);
    const first = await here.acquire();
    const order: number[] = [];
    const waiting: Promise<void>[] = [];
    for (let n = 0; n < 6; n += 1) {
      const semaphore = new Semaphore(openRedlock(server()), here.name, { permits: 1 });
      waiting.push(
        semaphore.acquire().then(async (permit) => {
          order.push(n);
          await permit.release();
        }),
      );
      await untilWaiting(here, n + 1);
    }
    await first.release();
    await Promise.all(waiting);
    expect(order).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it("are not overtaken by requests for one permit if they request many", async () => {
    const [here, there] = twoOf(3);
    const held = [await here.acquire(), await here.acquire({ permits: 2 })];
    const order: string[] = [];
    const all = there.acquire({ permits: 3 }).then((permit) => {
      order.push("three");
      return permit.release();
    });
    await untilWaiting(here, 1);
    const one = here.acquire().then((permit) => {
      order.push("one");
      return permit.release();
    });
    await untilWaiting(here, 2);
    await held[0]?.release();
    expect(await here.tryAcquire()).toBeNull();
    await held[1]?.release();
    await Promise.all([all, one]);
    expect(order).toEqual(["three", "one"]);
  });

  it("of one process have one place in line, and are served in order", async () => {
    const name = aName();
    const other = new Semaphore(openRedlock(server()), name, { permits: 1 });
    const held = await other.acquire();
    const { redlock, requests } = openRecorded(server());
    const semaphore = new Semaphore(redlock, name, { permits: 1 });
    const order: number[] = [];
    const served = Array.from({ length: 100 }, async (_, n) => {
      await using _permit = await semaphore.acquire();
      order.push(n);
    });
    await untilWaiting(other, 1);
    expect(new Set(requests.map(({ holder }) => holder)).size).toBe(1);
    expect(await commands(server()).zcard(`{${name}}:semaphore:waiters`)).toBe(1);
    await held.release();
    await Promise.all(served);
    expect(order).toEqual(Array.from({ length: 100 }, (_, n) => n));
    expect(requests.filter(({ operation }) => operation === "release")).toHaveLength(100);
  });

  it("send their requests in parallel while all of them can be granted", async () => {
    const { redlock, requests } = openRecorded(server());
    const semaphore = new Semaphore(redlock, aName(), { permits: 3 });
    const [two, one, behind] = [semaphore.acquire({ permits: 2 }), semaphore.acquire(), semaphore.acquire()];
    expect(requests).toHaveLength(2);
    await Promise.all([two, one]);
    await (await one).release();
    expect((await behind).isHeld()).toBe(true);
  });

  it("behind others of their process are not overtaken by other processes", async () => {
    const [here, there] = twoOf(1);
    const order: string[] = [];
    const serve = (semaphore: Semaphore, who: string): Promise<void> =>
      semaphore.using(() => void order.push(who), { timeout: 60_000 });
    const held = await here.acquire();
    const first = here.acquire();
    const second = serve(here, "second");
    await untilWaiting(there, 1);
    const third = serve(there, "third");
    await untilWaiting(there, 2);
    await held.release();
    const permit = await first;
    await untilWaiting(there, 2);
    await permit.release();
    await Promise.all([second, third]);
    expect(order).toEqual(["second", "third"]);
  });

  it("are not overtaken by a call of their process that does not wait", async () => {
    const name = aName();
    const there = new Semaphore(openRedlock(server()), name, { permits: 2 });
    const held = await there.acquire();
    const { redlock, requests } = openRecorded(server());
    const here = new Semaphore(redlock, name, { permits: 2 });
    const waiting = [here.acquire({ permits: 2 }), here.acquire()];
    await untilWaiting(there, 1);
    expect(await here.tryAcquire()).toBeNull();
    const refused = here.acquire({ timeout: 0 });
    await expect(refused).rejects.toBeInstanceOf(LockHeldError);
    await expect(refused).rejects.toThrow("no permit was free: 1 of 2 are held, 2 callers wait");
    expect(new Set(requests.map(({ holder }) => holder)).size).toBe(1);
    await held.release();
    for (const call of waiting) await (await call).release();
  });

  it("report the refusal of the first waiter of their process if their time ends before they are first", async () => {
    const node = await startNode();
    const { redlock } = openRecorded(
      node,
      {
        before: () => {
          throw new Error("not connected");
        },
      },
      { retryDelay: 60_000 },
    );
    const semaphore = new Semaphore(redlock, "jobs", { permits: 1 });
    const cancel = new AbortController();
    const isRefused = new Promise<void>((resolve) => redlock.on("refused", () => resolve()));
    const first = semaphore.acquire({ signal: cancel.signal }).catch(() => undefined);
    await isRefused;
    const second = semaphore.acquire({ timeout: 50 }).catch((error: unknown) => error);
    expect(await second).toBeInstanceOf(QuorumUnreachableError);
    expect(String(await second)).toContain("not connected");
    cancel.abort();
    await first;
  });

  it("pass on a turn that arrives after they have left", async () => {
    const name = aName();
    const [here, there] = [openRedlock(server()), openRedlock(server())].map(
      (redlock) => new Semaphore(redlock, name, { permits: 1 }),
    ) as [Semaphore, Semaphore];
    const held = await here.acquire();
    let isBroken = false;
    const { redlock, requests } = openRecorded(
      server(),
      {
        before: ({ operation }) => {
          if (isBroken && operation === "release") throw new Error("not connected");
        },
      },
      // Undelivered operations are sent again only when the clock advances.
      { clock: new ManualClock() },
    );
    const cancel = new AbortController();
    const gone = new Semaphore(redlock, name, { permits: 1 }).acquire({ signal: cancel.signal });
    await untilWaiting(here, 1);
    isBroken = true;
    cancel.abort();
    await expect(gone).rejects.toBe(cancel.signal.reason);
    isBroken = false;
    const next = there.acquire();
    await untilWaiting(here, 2);
    await held.release();
    expect((await next).isHeld()).toBe(true);
    const waiter = requests.find((request) => request.waiter !== "")?.waiter;
    expect(requests.filter(({ operation }) => operation === "release")).toMatchObject([{ waiter }]);
  });

  it("leave one place behind, however many of a process give up while the network is down", async () => {
    const [here] = twoOf(1);
    const held = await here.acquire();
    const proxy = await startProxy({ path: server().path });
    onTestFinished(() => proxy.stop());
    const redlock = new Redlock([proxy.url], { nodeTimeout: 10_000, timeout: 60_000, quarantine: false });
    onTestFinished(() => redlock.close());
    onTestFinished(() => {
      proxy.heal();
      proxy.drop();
    });
    const cancel = new AbortController();
    const cut = new Semaphore(redlock, here.name, { permits: 1 });
    const gone = Array.from({ length: 20 }, () => errorOf(cut.acquire({ signal: cancel.signal })));
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBeGreaterThan(0);
    proxy.blackhole();
    cancel.abort();
    expect(new Set(await Promise.all(gone))).toEqual(new Set([cancel.signal.reason]));
    expect((await here.inspect()).waiting).toBe(1);
    // The node keeps the permit for one turn of the process that it cannot reach, not for one turn of each caller.
    await held.release();
    expect((await here.acquire()).isHeld()).toBe(true);
  });

  it("reject with their own reason when they cancel, and leave no place behind", async () => {
    const [here, there] = twoOf(1);
    const held = await here.acquire();
    const controller = new AbortController();
    const cancelled = there.acquire({ signal: controller.signal, timeout: Number.POSITIVE_INFINITY });
    await untilWaiting(here, 1);
    const reason = new Error("no longer wanted");
    controller.abort(reason);
    await expect(cancelled).rejects.toBe(reason);
    await untilWaiting(here, 0);
    await held.release();
    expect((await here.tryAcquire())?.isHeld()).toBe(true);
  });

  it("are not granted by an answer that is read after nodeTimeout, and release the permit", async () => {
    const name = aName();
    const clock = new ManualClock();
    const other = new Semaphore(openRedlock(server()), name, { permits: 1 });
    for (const [blockedMs, isGranted] of [
      [1_001, false],
      [900, true],
    ] as const) {
      const hook = ({ operation }: Request): void => {
        if (operation === "acquire") clock.block(blockedMs);
      };
      const { redlock } = openRecorded(server(), { after: hook }, { clock, nodeTimeout: 1_000 });
      const outcome = await new Semaphore(redlock, name, { permits: 1 })
        .acquire({ timeout: 0 })
        .catch((error) => error);
      expect(outcome instanceof Error).toBe(!isGranted);
      if (!isGranted) expect(String(outcome)).toContain("the answer was read after its timeout");
      await expect.poll(async () => (await other.inspect()).used).toBe(isGranted ? 1 : 0);
    }
  });

  it("that are granted after close() reject, and release the permit", async () => {
    const name = aName();
    const other = new Semaphore(openRedlock(server()), name, { permits: 1 });
    for (let turns = 0; turns < 25; turns += 1) {
      const { redlock } = openRecorded(server(), {
        after: ({ operation }) => {
          if (operation === "acquire") afterMicrotasks(turns, () => void redlock.close());
        },
      });
      const outcome = await new Semaphore(redlock, name, { permits: 1 }).acquire().catch((error: unknown) => error);
      await redlock.close();
      if (outcome instanceof Error) expect(outcome).toBeInstanceOf(RedlockClosedError);
      else expect(outcome).toMatchObject({ signal: { aborted: true } });
      expect((await other.inspect()).used).toBe(0);
    }
  });

  it("are skipped when their process has died", async () => {
    const name = aName();
    const [here, dying] = [openRedlock(server()), openRedlock(server())];
    const semaphore = new Semaphore(here, name, { permits: 1 });
    const held = await semaphore.acquire();
    const died = new Semaphore(dying, name, { permits: 1 }).acquire().catch((error: unknown) => error);
    await untilWaiting(semaphore, 1);
    const next = semaphore.acquire();
    await untilWaiting(semaphore, 2);
    await dying.close();
    expect(await died).toBeInstanceOf(RedlockClosedError);
    await held.release();
    expect((await next).isHeld()).toBe(true);
  });

  it("report the number of held permits when they wait in vain", async () => {
    const [here, there] = twoOf(2);
    await here.acquire({ permits: 2 });
    const error = await there.acquire({ timeout: 50 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject({ code: "LOCK_HELD", resource: there.name });
    expect(String(error)).toMatch(/semaphore ".*": no permit was free: 2 of 2 are held/);
    await untilWaiting(here, 0);
  });
});

describe("a node", () => {
  it("lets holders continue after it lost its data, and counts them again", async () => {
    const node = await startNode();
    const semaphore = new Semaphore(openRedlock(node), "jobs", { permits: 2 });
    const held = [await semaphore.acquire(), await semaphore.acquire()];
    await commands(node).flushall();
    await Promise.all(held.map((permit) => permit.extend()));
    expect((await semaphore.inspect()).used).toBe(2);
    expect(await semaphore.tryAcquire()).toBeNull();
  });

  it("notifies holders of their loss if it lost its data and granted permits to others", async () => {
    const node = await startNode();
    const semaphore = new Semaphore(openRedlock(node), "jobs", { permits: 1 });
    const held = await semaphore.acquire();
    await commands(node).flushall();
    const next = await semaphore.acquire();
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
    await expect(held.extend()).rejects.toBeInstanceOf(LockLostError);
    expect(held.signal.aborted).toBe(true);
    expect(next.isHeld()).toBe(true);
  });

  it("with quarantine grants nothing after a loss of data, while holders continue", async () => {
    const node = await startNode();
    const client = commands(node);
    const runId = /run_id:(\w+)/.exec(await client.info("server"))?.[1] ?? "";
    await client.hset("{x}:node", { run_id: runId, since: 1 });
    const semaphore = new Semaphore(openRedlock(node, { quarantine: true }), "jobs", { permits: 2 });
    const held = await semaphore.acquire();
    await client.flushall();
    const error = await semaphore.acquire({ timeout: 20 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(QuorumUnreachableError);
    expect(String(error)).toMatch(/in quarantine/);
    await held.extend();
    expect(await semaphore.inspect()).toMatchObject({ used: 1, waiting: 0 });
  });

  it("causes an error of the node, not of the semaphore, when it is unreachable", async () => {
    const node = await startRedis();
    const semaphore = new Semaphore(openRedlock(node, { nodeTimeout: 500 }), "jobs", { permits: 2 });
    await node.stop();
    await expect(semaphore.acquire({ timeout: 50 })).rejects.toBeInstanceOf(QuorumUnreachableError);
    await expect(semaphore.inspect()).rejects.toBeInstanceOf(QuorumUnreachableError);
  });
});

describe("a semaphore", () => {
  it("refuses a Redlock of several nodes with the reason", async () => {
    const redlock = openRedlock(server());
    Object.defineProperty(redlock, "nodeCount", { value: 3 });
    expect(() => new Semaphore(redlock, "jobs", { permits: 2 })).toThrow(
      /one Cluster, got 3 nodes: permits of independent/,
    );
  });

  it("reports its grants as the Redlock's events, and its calls to tracing tools", async () => {
    const redlock = openRedlock(server());
    const semaphore = new Semaphore(redlock, aName(), { permits: 1 });
    const told: string[] = [];
    redlock.on("acquired", () => told.push("acquired"));
    redlock.on("acquireFailed", ({ reason }) => told.push(reason));
    redlock.on("released", ({ confirmed }) => told.push(`released ${String(confirmed)}`));
    const traced: unknown[] = [];
    const channel = tracingChannel<unknown, object>("x.semaphore:acquire");
    const onStart = (facts: unknown): void => void traced.push(facts);
    channel.start.subscribe(onStart);
    onTestFinished(() => {
      channel.start.unsubscribe(onStart);
    });
    const permit = await semaphore.acquire();
    expect(await semaphore.tryAcquire()).toBeNull();
    await permit.release();
    expect(told).toEqual(["acquired", "held", "released true"]);
    expect(traced).toMatchObject([{ resource: semaphore.name, permits: 1 }, { permits: 1 }]);
  });
});
