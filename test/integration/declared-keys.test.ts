/**
 * Locks, semaphores, latches, elections and schedulers declare every key that their scripts read or write. Each script
 * runs as a user whose rights are exactly the keys of the call, as on a server that refuses undeclared keys.
 */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { type LockNode, type NodeScript, type NodeState, Redlock, type RedlockOptions } from "@x/redlock-core";
import { CountDownLatch, ReadWriteLock, Semaphore } from "@x/semaphore";
import { type RedisServer, startRedisNodes } from "@x/test-support";
import { Redis } from "ioredis";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";

/** A node that gives its user the rights to the keys of a call before the call. */
class DeclaredKeysNode implements LockNode {
  readonly name: string;
  readonly state: NodeState = "ready";
  readonly #user: string;
  readonly #admin: Redis;
  readonly #connection: Redis;
  readonly #subscriber: Redis;
  #calls: Promise<unknown> = Promise.resolve();

  constructor({ port, name }: RedisServer & { readonly name: string }, user: string) {
    this.name = name;
    this.#user = user;
    this.#admin = new Redis(port);
    this.#connection = new Redis(port, { username: user, password: "secret", lazyConnect: true });
    this.#subscriber = new Redis(port);
    this.#calls = this.#admin
      .call("ACL", "SETUSER", user, "on", ">secret", "resetchannels", "&*", "+@all")
      .then(() => this.#connection.connect());
  }

  /** Requests run one after another, in the order of the calls. */
  eval({ source }: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const rights = keys.map((key) => `~${key.replaceAll(/[\\*?[\]]/g, String.raw`\$&`)}`);
    const answer = this.#calls.then(async () => {
      await this.#admin.call("ACL", "SETUSER", this.#user, "resetkeys", ...rights);
      return await this.#connection.eval(source, keys.length, ...keys, ...args);
    });
    this.#calls = answer.catch(() => undefined);
    return answer;
  }

  async subscribe(channel: string, listener: (message: string) => void): Promise<() => void> {
    const onMessage = (from: string, message: string): void => {
      if (from === channel) listener(message);
    };
    this.#subscriber.on("message", onMessage);
    await this.#subscriber.subscribe(channel);
    return () => this.#subscriber.off("message", onMessage);
  }

  onStateChange(): () => void {
    return () => undefined;
  }

  async close(): Promise<void> {
    await this.#calls;
    for (const connection of [this.#admin, this.#connection, this.#subscriber]) connection.disconnect();
  }
}

const patient = { timeout: 20_000 };

describe.each([1, 3])("with every key declared, on %i nodes", (count) => {
  let servers: readonly RedisServer[];
  let opened = 0;
  beforeEach(async () => {
    servers = await startRedisNodes(count);
    onTestFinished(async () => {
      await Promise.all(servers.map((server) => server.stop()));
    });
  });

  function openRedlock(options: RedlockOptions = {}): Redlock {
    opened += 1;
    const nodes = servers.map((server, at) => {
      return new DeclaredKeysNode(Object.assign(server, { name: `node ${at}` }), `process-${opened}`);
    });
    const redlock = new Redlock(nodes, { quarantine: false, nodeTimeout: 5_000, keyPrefix: "app:", ...options });
    onTestFinished(async () => {
      await redlock.close();
      await Promise.all(nodes.map((node) => node.close()));
    });
    return redlock;
  }

  /** Returns the commands that a server has refused because of their keys. */
  async function refusals(): Promise<readonly unknown[]> {
    const logs = await Promise.all(servers.map((server) => server.call("ACL", "LOG") as Promise<unknown[]>));
    return logs.flat();
  }

  const inLine = async (redlock: Redlock, resource: string, waiters: number): Promise<void> => {
    await expect
      .poll(async () => (await redlock.inspect(resource)).nodes.every((node) => node.waiters === waiters), patient)
      .toBe(true);
  };

  it("a script that touches another key is refused", async () => {
    const node = new DeclaredKeysNode(Object.assign(servers[0] as RedisServer, { name: "node" }), "other");
    onTestFinished(() => node.close());
    const get = { name: "get", sha1: "", source: "return redis.call('GET', 'b')" };
    await expect(node.eval(get, ["b"], [])).resolves.toBeNull();
    await expect(node.eval(get, ["a*"], [])).rejects.toThrow(/NOPERM|permissions|can't access/);
    expect(await refusals()).not.toEqual([]);
  });

  it.each([false, true])(
    "locks are granted, waited for, extended and released by force (quarantine: %s)",
    async (quarantine) => {
      const options = { quarantine, ttl: 3_000, maxTtl: 3_000 };
      const [a, b, c] = [openRedlock(options), openRedlock(options), openRedlock(options)];
      for (const resources of [["r"], ["{t}:r", "{t}:s"]]) {
        const [resource = ""] = resources;
        const first = await a.acquire(resources, { autoExtend: true, timeout: 60_000 });
        const waiting = [b.acquire(resources, { timeout: 60_000 })];
        await inLine(a, resource, 1);
        waiting.push(c.acquire(resources, { timeout: 60_000 }));
        await inLine(a, resource, 2);
        await expect(a.acquire(resources, { timeout: 300 })).rejects.toThrow("held");
        await first.extend();
        // The release and the waiting call of the same process share one request.
        waiting.push(a.acquire(resources, { timeout: 60_000 }));
        expect(await first.release()).toBe(true);
        for (const next of waiting) expect(await (await next).release()).toBe(true);

        const lost = await b.acquire(resources, { autoExtend: true, timeout: 60_000 });
        await servers[0]?.call("DEL", `app:${resource}`);
        await lost.extend().catch(() => undefined);
        const last = a.acquire(resources, { timeout: 60_000 });
        await inLine(a, resource, 1);
        expect(await a.forceRelease(resource)).toBe(true);
        if (resources.length > 1) await lost.release();
        await (await last).release();
      }
      await Promise.all(["x", "y", "z"].map(async (each) => (await a.acquire(each)).release()));
      expect(await refusals()).toEqual([]);
    },
  );

  it("permits are granted, waited for and extended", async () => {
    const [a, b] = [openRedlock(), openRedlock()];
    const locks = [a, b].map((redlock) => new ReadWriteLock(redlock, "report"));
    const reading = await locks[0]?.read.acquire({ timeout: 60_000 });
    const writing = locks[1]?.write.acquire({ timeout: 60_000 });
    await reading?.extend();
    await reading?.release();
    await (await writing)?.release();
    if (count === 1) {
      const [ours, theirs] = [a, b].map((redlock) => new Semaphore(redlock, "gpu", { permits: 2 }));
      const both = await ours?.acquire({ permits: 2 });
      const waiting = theirs?.acquire({ timeout: 60_000 });
      await expect.poll(async () => (await ours?.inspect())?.waiting, patient).toBe(1);
      await both?.release();
      await (await waiting)?.release();
      const latches = [a, b].map((redlock) => new CountDownLatch(redlock, "round"));
      for (const round of [1, 2]) {
        expect(await latches[0]?.set(1)).toBe(true);
        const opens = latches[1]?.wait({ timeout: 60_000 });
        expect(await latches[0]?.countDown(`part ${round}`)).toBe(0);
        await opens;
      }
    }
    expect(await refusals()).toEqual([]);
  });

  it("elections and their schedulers lead, hand over, and carry out orders", async () => {
    const elections = [openRedlock(), openRedlock()].map(
      (redlock, id) => new LeaderElection(redlock, { name: "boss", id: `${id}`, cooldown: { initial: 10 } }),
    );
    const [a, b] = elections as [LeaderElection, LeaderElection];
    const ticks: string[] = [];
    const [here, there] = [a, b].map((election) => {
      const scheduler = new LeaderScheduler({ election });
      scheduler.every("fast", 200, () => void ticks.push(election.id));
      onTestFinished(async () => {
        await scheduler.stop();
        await election.stop();
      });
      return scheduler;
    }) as [LeaderScheduler, LeaderScheduler];
    here.start();
    await expect.poll(() => ticks.length, patient).toBeGreaterThan(1);
    there.start();
    expect(await b.leader()).toMatchObject({ id: "0" });
    await there.trigger("fast");
    await there.pause("fast");
    expect(await there.list()).toMatchObject([{ name: "fast", paused: true }]);
    await there.resume("fast");
    expect(await b.requestResign()).toBe(true);
    await expect.poll(() => ticks.at(-1), patient).toBe("1");
    await expect.poll(async () => (await here.history("fast")).length, patient).toBeGreaterThan(0);
    expect(await refusals()).toEqual([]);
  });
});
