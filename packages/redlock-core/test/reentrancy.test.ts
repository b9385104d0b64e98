/** `using` inside `using` of the same resource, in one asynchronous context. */
import { once } from "node:events";
import { setImmediate as immediate } from "node:timers/promises";
import type { RedisServer } from "@x/test-support";
import { errorOf, startRedisNodes } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type Lock,
  LockHeldError,
  LockLostError,
  type Redlock,
  RedlockClosedError,
  ReentrancyError,
} from "../src/index.ts";
import { deferred } from "../src/kit.ts";
import { openRedlock, requestsOf } from "./support/nodes.ts";

/** A call that would wait fails its test by the test's own timeout. */
const patient = { timeout: Number.POSITIVE_INFINITY };
const joining = { ...patient, reentrancy: "join" } as const;

let servers: RedisServer[];
let redlock: Redlock;
let requests: () => Promise<number>;
beforeAll(async () => {
  servers = await startRedisNodes(1);
  requests = () => requestsOf(servers[0]);
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

/** Patient, so that a busy machine changes no error. */
const open = (options = {}): Redlock => openRedlock(servers, { timeout: 60_000, ...options });

describe("a using() call inside using()", () => {
  it("is refused immediately for the same resource, with an error that names it", async () => {
    redlock = open();
    const result = await redlock.using("same", async (lock) => {
      const error = await errorOf(redlock.using("same", () => expect.unreachable(), patient));
      expect(error).toBeInstanceOf(ReentrancyError);
      expect(error).toMatchObject({ code: "REENTRANCY", resource: "same", resources: ["same"] });
      expect((error as Error).message).toBe(
        'lock "same" is held by the using() around this one, which would wait for itself: ' +
          'pass its lock along, or set reentrancy to "join"',
      );
      expect(lock.isHeld()).toBe(true);
      return "done";
    });
    expect(result).toBe("done");
  });

  it("is recognized in all code that the routine calls: functions, timers, other locks", async () => {
    redlock = open();
    const nested = async (): Promise<void> => redlock.using(["x", "deep"], () => expect.unreachable(), patient);
    await redlock.using(["deep", "other"], async () => {
      expect(await errorOf(Promise.resolve().then(nested))).toBeInstanceOf(ReentrancyError);
      const later = deferred<unknown>();
      setTimeout(() => later.resolve(errorOf(nested())), 1);
      expect(await later.promise).toBeInstanceOf(ReentrancyError);
      await redlock.using("between", async () => {
        const error = await errorOf(nested());
        expect(error).toMatchObject({ code: "REENTRANCY", resource: "deep", resources: ["x", "deep"] });
        expect((error as Error).message).toMatch(/: it does not hold "x", so lock all of them in the outer call$/);
      });
    });
  });

  it("is not refused for another resource, or outside the routine", async () => {
    redlock = open();
    const inside = deferred<void>();
    const isWaiting = new Promise((resolve) => redlock.on("refused", resolve));
    const order: string[] = [];
    const outer = redlock.using("busy", async () => {
      await redlock.using("free", () => order.push("inner"));
      inside.resolve();
      await isWaiting;
      order.push("outer");
    });
    await inside.promise;
    await redlock.using("busy", () => order.push("next"), patient);
    await outer;
    expect(order).toEqual(["inner", "outer", "next"]);
  });

  it("is not nested once the routine has ended, or has released or lost the lock", async () => {
    redlock = open();
    const ended = deferred<void>();
    let late: Promise<number> | undefined;
    await redlock.using("over", () => {
      late = ended.promise.then(() => redlock.using("over", (lock) => lock.fencingToken, patient));
    });
    ended.resolve();
    expect(await late).toBeGreaterThan(0);

    await redlock.using("over", async (lock) => {
      await lock.release();
      expect(await redlock.using("over", (next) => next.fencingToken, joining)).toBeGreaterThan(lock.fencingToken);
    });
    await redlock.using("over", async (lock) => {
      await redlock.forceRelease("over");
      expect(await redlock.using("over", (next) => next.fencingToken, joining)).toBeGreaterThan(lock.fencingToken);
    });
  });

  it("waits for itself with reentrancy `wait`, and so does a call inside such a call", async () => {
    redlock = open();
    const inner = (reentrancy: "refuse" | "wait"): Promise<unknown> =>
      errorOf(redlock.using("w", () => expect.unreachable(), { reentrancy, timeout: 50 }));
    await redlock.using("w", async () => expect(await inner("wait")).toBeInstanceOf(LockHeldError));
    const silent = { reentrancy: "wait" } as const;
    await redlock.using("w", async () => expect(await inner("refuse")).toBeInstanceOf(LockHeldError), silent);
  });

  it("waits for itself through another Redlock, which does not know that the lock is the same", async () => {
    const [a, b] = [open(), open()];
    // Connected: the short wait below is for the lock alone.
    await (await b.acquire("one", patient)).release();
    await a.using("two", async () => {
      expect(await errorOf(b.using("two", () => expect.unreachable(), { timeout: 50 }))).toBeInstanceOf(LockHeldError);
    });
  });
});

describe("a joined call", () => {
  it("uses the outer lock, without a request to any node", async () => {
    redlock = open({ reentrancy: "join" });
    await redlock.using(["a", "b"], async (outer) => {
      const before = await requests();
      await redlock.using("a", async (lock) => {
        expect(lock.resources).toEqual(["a"]);
        expect(lock.fencingToken).toBe(outer.fencingToken);
        expect(lock.token).toBe(outer.token);
        expect(lock.isHeld()).toBe(true);
        expect(await redlock.using(["b", "a"], (deeper) => deeper.fencingToken)).toBe(outer.fencingToken);
      });
      expect(await requests()).toBe(before);
      expect(outer.isHeld()).toBe(true);
    });
    expect(await redlock.tryAcquire(["a", "b"])).not.toBeNull();
  });

  it("settles as its own routine does, and so does the outer call", async () => {
    redlock = open();
    const failed = new Error("inner");
    const result = await redlock.using("s", async () => {
      const error = await errorOf(redlock.using("s", () => Promise.reject(failed), joining));
      expect(error).toBe(failed);
      return await redlock.using("s", () => 7, joining);
    });
    expect(result).toBe(7);
  });

  it("takes turns with the other joined calls", async () => {
    redlock = open();
    let count = 0;
    await redlock.using("turns", async () => {
      const increment = async (): Promise<void> => {
        const read = count;
        await immediate();
        count = read + 1;
        // A call inside the lock is not a neighbor.
        await redlock.using("turns", () => undefined, joining);
      };
      await Promise.all(Array.from({ length: 10 }, () => redlock.using("turns", increment, joining)));
    });
    expect(count).toBe(10);
  });

  it("leaves the line of joined calls by its timeout, its signal, or close()", async () => {
    redlock = open();
    const door = deferred<void>();
    const controller = new AbortController();
    const reason = new Error("enough");
    const nested = (options: object): Promise<unknown> =>
      errorOf(redlock.using("line", () => expect.unreachable(), { ...joining, ...options }));
    await redlock.using("line", async () => {
      const first = redlock.using("line", () => door.promise, joining);
      const timedOut = nested({ timeout: 20 });
      const cancelled = nested({ signal: controller.signal });
      controller.abort(reason);
      expect(await cancelled).toBe(reason);
      expect(await nested({ signal: controller.signal })).toBe(reason);
      const error = await timedOut;
      expect(error).toBeInstanceOf(LockHeldError);
      expect((error as Error).message).toMatch(
        /^lock "line" is held by another call that has joined it: waited \d+ ms$/,
      );
      const closed = nested({});
      const closing = redlock.close();
      expect(await closed).toBeInstanceOf(RedlockClosedError);
      expect(await nested({})).toBeInstanceOf(RedlockClosedError);
      door.resolve();
      await Promise.all([first, closing]);
    });
  });

  it("keeps the lock when the outer routine does not wait for the call, and delays the end of the outer call", async () => {
    redlock = open();
    const door = deferred<void>();
    const started = deferred<Lock>();
    let isOver = false;
    const outer = redlock
      .using("kept", () => {
        void redlock.using(
          "kept",
          async (lock) => {
            started.resolve(lock);
            await door.promise;
          },
          joining,
        );
      })
      .then(() => {
        isOver = true;
      });
    const lock = await started.promise;
    expect(await redlock.tryAcquire("kept")).toBeNull();
    expect(lock.isHeld()).toBe(true);
    expect(lock.signal.aborted).toBe(false);
    expect(isOver).toBe(false);
    door.resolve();
    await outer;
    expect(await redlock.tryAcquire("kept")).not.toBeNull();
  });

  it("may release its handle, which does not release the lock", async () => {
    redlock = open();
    await redlock.using("handle", async (outer) => {
      await redlock.using(
        "handle",
        async (lock) => {
          const { signal } = lock;
          expect([await lock.release(), await lock.release()]).toEqual([true, true]);
          expect(lock.isHeld()).toBe(false);
          expect(() => lock.assertHeld()).toThrow(LockLostError);
          expect(await errorOf(lock.extend())).toMatchObject({ code: "LOCK_LOST", reason: "released" });
          expect(outer.isHeld()).toBe(true);
          await outer.release();
          expect(signal.aborted).toBe(false);
        },
        joining,
      );
    });
  });

  it("is notified of a loss, even if the outer code releases the lock", async () => {
    redlock = open();
    await redlock.using("lost", async (outer) => {
      const { signal } = outer;
      await redlock.using(
        "lost",
        async (lock) => {
          const aborted = once(lock.signal, "abort");
          await redlock.forceRelease("lost");
          await aborted;
          expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "forced" });
          expect(lock.signal.reason).toBe(signal.reason);
          expect(lock.isHeld()).toBe(false);
        },
        joining,
      );
    });
    await redlock.using("lost", async (outer) => {
      await redlock.using(
        "lost",
        async (lock) => {
          const { signal } = lock;
          await outer.release();
          expect(signal.aborted).toBe(true);
          expect(signal.reason).toMatchObject({ reason: "released", fencingToken: lock.fencingToken });
        },
        joining,
      );
    });
  });

  it("extends the lease to a longer requested ttl, and never shortens it", async () => {
    redlock = open({ ttl: 30_000 });
    await redlock.using("longer", async (outer) => {
      const left = (ttl?: number): Promise<number> =>
        redlock.using("longer", (lock) => lock.remaining(), { ...joining, ttl });
      const before = await requests();
      expect(await left()).toBeLessThan(30_000);
      expect(await left(500)).toBeGreaterThan(500);
      expect(await requests()).toBe(before);
      expect(await left(60_000)).toBeGreaterThan(30_000);
      expect(outer.remaining()).toBeGreaterThan(30_000);
    });
  });

  it("ends by its signal while the lease is extended for it", async () => {
    redlock = open({ ttl: 30_000 });
    const [controller, reason] = [new AbortController(), new Error("enough")];
    await redlock.using("slow", async () => {
      servers[0]?.freeze();
      const { signal } = controller;
      const nested = errorOf(redlock.using("slow", () => expect.unreachable(), { ...joining, ttl: 60_000, signal }));
      controller.abort(reason);
      const error = await nested;
      servers[0]?.thaw();
      expect(error).toBe(reason);
    });
  });

  it("joins only a lock that has all of its resources", async () => {
    redlock = open({ reentrancy: "join" });
    await redlock.using("one", async () => {
      expect(await errorOf(redlock.using(["one", "two"], () => expect.unreachable()))).toBeInstanceOf(ReentrancyError);
      await redlock.using("two", async () => {
        const error = await errorOf(redlock.using(["one", "two"], () => expect.unreachable()));
        expect(error).toMatchObject({ code: "REENTRANCY", resource: "two" });
      });
    });
  });
});
