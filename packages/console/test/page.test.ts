import { createServer, request as httpRequest, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import "reflect-metadata";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { createPage, nodeListener, type Page, type PageOptions } from "@x/console/page";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { ReadWriteLock, Semaphore } from "@x/semaphore";
import { type RedisServer, startRedis, startRedisNodes } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { isClient, newClient } from "../src/page/guard.ts";
import { withChanges } from "../src/page/rules/changes.ts";
import type { PageState, TickMark } from "../src/page/state.ts";

const REFRESH = 200;

@Module({})
class AppModule {}

let servers: readonly RedisServer[];
beforeAll(async () => {
  servers = await startRedisNodes(3);
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

function connected(nodes = servers): Redlock {
  const redlock = new Redlock(
    nodes.map(({ url }) => url),
    { quarantine: false },
  );
  onTestFinished(() => redlock.close());
  return redlock;
}

interface Served {
  readonly page: Page;
  readonly url: string;
}

/** Serves a page over HTTP until the test ends. */
async function serve(options: Omit<PageOptions, "redlock"> & { readonly redlock?: Redlock } = {}): Promise<Served> {
  const page = createPage({ refresh: REFRESH, redlock: connected(), ...options });
  const server = createServer(nodeListener(page));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    await page.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return { page, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** Sends a request with any header, unlike a browser. */
async function ask(
  url: string,
  {
    method = "GET",
    headers = {},
  }: { readonly method?: string; readonly headers?: Readonly<Record<string, string>> } = {},
): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    const asking = httpRequest(url, { method, headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => (text += part));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
    });
    asking.on("error", reject);
    asking.end();
  });
}

async function stateAt(url: string, query = ""): Promise<PageState> {
  const { text } = await ask(`${url}state${query}`);
  return JSON.parse(text) as PageState;
}

/** Listens to the live events until the test ends. Returns the latest state. */
function listen(
  url: string,
  query = "",
): {
  readonly latest: () => PageState | undefined;
  readonly looks: () => number;
  /** Length of the latest event. */
  readonly bytes: () => number;
  readonly end: () => void;
} {
  const ending = new AbortController();
  let latest: PageState | undefined;
  let looks = 0;
  let bytes = 0;
  const reading = (async () => {
    const response = await fetch(`${url}events${query}`, { signal: ending.signal });
    let text = "";
    const decoder = new TextDecoder();
    for await (const part of response.body ?? []) {
      text += decoder.decode(part as Uint8Array, { stream: true });
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        const [, json] = /^data: (.*)$/m.exec(block) ?? [];
        if (json === undefined) continue;
        const told = JSON.parse(json) as unknown;
        bytes = json.length;
        latest = Array.isArray(told) && latest !== undefined ? withChanges(latest, told) : (told as PageState);
        looks += 1;
      }
    }
  })().catch(() => undefined);
  onTestFinished(async () => {
    ending.abort();
    await reading;
  });
  return { latest: () => latest, looks: () => looks, bytes: () => bytes, end: () => ending.abort() };
}

/** Returns the name of a loaded page, which the page sends with each request. */
const clientOf = async (url: string): Promise<string> =>
  /x-console-client" content="([^"]*)"/.exec((await ask(url)).text)?.[1] ?? "";

const lockIn = (state: PageState | undefined, resource: string): unknown =>
  state?.locks.value?.locks.find((lock) => lock.resource === resource);

describe("the page's data", () => {
  it("contain semaphores and read-write locks as their own inspection reports them", async () => {
    const [first] = servers;
    if (first === undefined) throw new Error("no server");
    const redlock = connected();
    const single = connected([first]);
    const { url } = await serve({ redlock });
    const { latest } = listen(url, "?changes=1");
    const bank = new Semaphore(single, "bank{api}", { permits: 5, ttl: 60_000 });
    const prices = new ReadWriteLock(redlock, "price list", { ttl: 60_000 });
    const held = await bank.acquire({ permits: 3 });
    const readers = [await prices.read.acquire(), await prices.read.acquire()];
    const waiting = bank.acquire({ permits: 4, timeout: 60_000 });
    const shown = (name: string): unknown => latest()?.semaphores.semaphores.find((each) => each.name === name);
    await expect.poll(() => shown("bank{api}")).toMatchObject({ kind: "semaphore", used: 3, permits: 5, leases: 1 });
    await expect.poll(() => shown("bank{api}")).toMatchObject({ waiters: 1, endsInMs: expect.any(Number) });
    expect(await bank.inspect()).toMatchObject({ permits: 5, used: 3, waiting: 1, holders: [{ permits: 3 }] });
    await expect.poll(() => shown("price list")).toMatchObject({ kind: "read-write lock", used: 2, waiters: 0 });
    expect(await prices.inspect()).toMatchObject({ readers: 2, isWriting: false, waiting: 0 });
    // Most waiters first.
    expect(latest()?.semaphores).toMatchObject({
      total: 2,
      semaphores: [{ name: "bank{api}" }, { name: "price list" }],
    });
    await held.release();
    await Promise.all(readers.map((reader) => reader.release()));
    const writer = await prices.write.acquire();
    await expect.poll(() => shown("bank{api}")).toMatchObject({ used: 4, waiters: 0 });
    await expect.poll(() => shown("price list")).toMatchObject({ used: 1_000_000, permits: 1_000_000, leases: 1 });
    await (await waiting).release();
    await writer.release();
    await expect.poll(() => shown("bank{api}")).toMatchObject({ used: 0, leases: 0 });
    expect(shown("bank{api}")).not.toHaveProperty("endsInMs");
    // A foreign key with such a name is none.
    const client = new Redis(first.url);
    onTestFinished(() => client.disconnect());
    await client.hset("{odd}:semaphore", { used: "a lot" });
    await client.set("{text}:semaphore", "1");
    await client.del("bank{api}:semaphore", "bank{api}:semaphore:holders");
    await expect.poll(() => latest()?.semaphores.semaphores.map(({ name }) => name)).toEqual(["price list"]);
    // A lock may have such a name.
    await using _lock = await redlock.acquire("odd:semaphore", { ttl: 60_000 });
    await expect.poll(() => lockIn(latest(), "odd:semaphore")).toMatchObject({ state: "held" });
  });

  it("contain the locks with their waiters while they change", async () => {
    const redlock = connected();
    const { url } = await serve({ redlock });
    const { latest } = listen(url, "?findLock=page:");
    const lock = await redlock.acquire("page:a", { ttl: 30_000 });
    const waiting = connected().acquire("page:a", { timeout: 60_000 });
    // Awaited below. If the test fails earlier, its closed client rejects the call.
    waiting.catch(() => undefined);
    await expect.poll(() => lockIn(latest(), "page:a")).toMatchObject({ state: "held", waiters: 1 });
    const { verdict, remainingMs, nodes } = await redlock.inspect("page:a");
    const [shown] = latest()?.locks.value?.locks ?? [];
    expect(shown?.state).toBe(verdict);
    // A node that was slow may have been left out by the grant.
    const votes = nodes.filter(({ state }) => state === "held").length;
    await expect.poll(() => lockIn(latest(), "page:a")).toMatchObject({ votes });
    expect(shown?.remainingMs).toBeGreaterThan(0);
    expect(shown?.remainingMs).toBeLessThanOrEqual(30_000);
    expect(remainingMs).toBeGreaterThan(0);
    const before = shown?.holder;
    await lock.release();
    const next = await waiting;
    await expect.poll(() => latest()?.locks.value?.locks[0]).toMatchObject({ state: "held", waiters: 0 });
    expect(latest()?.locks.value?.locks[0]?.holder).not.toBe(before);
    await next.release();
    await expect.poll(() => latest()?.locks.value).toMatchObject({ found: 0, isComplete: true });
  });

  it("contain found elections with their terms", async () => {
    const { url } = await serve();
    const { latest } = listen(url);
    const [first, second] = ["host-a", "host-b"].map(
      (id) => new LeaderElection(connected(), { name: "page", id, value: "10.0.0.1" }),
    ) as [LeaderElection, LeaderElection];
    onTestFinished(async () => {
      await Promise.all([first.stop({ drainTimeout: 0 }), second.stop({ drainTimeout: 0 })]);
    });
    const election = (): PageState["elections"][number] | undefined =>
      latest()?.elections.find(({ name }) => name === "page");
    const term = await first.campaign();
    await expect.poll(() => election()?.leader).toMatchObject({ id: "host-a", term: term.term, value: "10.0.0.1" });
    expect(election()?.leader?.id).toBe((await second.leader())?.id);
    // The note of the grant ends with the first lease: the lock is named by the record of the term.
    await Promise.all(servers.map(async (server) => await server.call("DEL", "{leader:page}:note")));
    const owner = async (): Promise<unknown> =>
      (await stateAt(url, "?findLock=leader:page")).locks.value?.locks.map((lock) => lock.owner);
    await expect.poll(owner).toEqual(["host-a"]);
    await term.resign();
    await expect.poll(() => election()?.leader).toBeUndefined();
    const next = await second.campaign();
    await expect.poll(() => election()?.leader).toMatchObject({ id: "host-b", term: next.term });
    const ends = (terms: PageState["elections"][number]["terms"] | undefined): unknown =>
      terms?.map(({ id, until, end }) => [id, until === undefined, end]);
    await expect
      .poll(() => ends(election()?.terms))
      .toEqual([
        ["host-a", false, "resigned"],
        ["host-b", true, undefined],
      ]);
    const [ended, current] = election()?.terms ?? [];
    expect(ended?.until).toBeLessThanOrEqual(current?.since ?? 0);
    expect(election()).toMatchObject({ state: "led", leaseMs: expect.any(Number) });
    const late = await serve();
    await expect
      .poll(async () => (await stateAt(late.url)).elections[0]?.terms.map(({ id }) => id))
      .toEqual(["host-a", "host-b"]);
  });

  it("contain the gap after a leader that died, from the end of its lease", async () => {
    const { url } = await serve();
    const { latest } = listen(url);
    const redlock = connected();
    const dying = new LeaderElection(redlock, {
      name: "gap",
      id: "host-a",
      leaseDuration: 1_500,
      renewDeadline: 1_000,
    });
    onTestFinished(() => dying.stop({ drainTimeout: 0 }));
    const election = (): PageState["elections"][number] | undefined =>
      latest()?.elections.find(({ name }) => name === "gap");
    await dying.campaign();
    await expect.poll(() => election()?.state).toBe("led");
    // The leader neither renews its lease nor records its end, as if its process had been killed.
    await redlock.close();
    await expect.poll(() => election()?.state, { timeout: 10_000 }).toBe("gap");
    const [term] = election()?.terms ?? [];
    expect(term).toMatchObject({ id: "host-a", end: "lease-ended" });
    expect(election()?.leaderlessSince).toBe(term?.until);
    expect(term?.until).toBeLessThanOrEqual(latest()?.now ?? 0);
    const next = new LeaderElection(connected(), { name: "gap", id: "host-b" });
    onTestFinished(() => next.stop({ drainTimeout: 0 }));
    await next.campaign();
    await expect.poll(() => election()?.state).toBe("led");
    expect(election()?.terms).toMatchObject([{ id: "host-a", until: term?.until }, { id: "host-b" }]);
    expect(election()?.leaderlessSince).toBeUndefined();
  });

  it("contain no election or scheduler with an impossible name", async () => {
    const long = "x".repeat(5_000);
    const names = ["leader::leader", `leader:${long}:leader`];
    const redlock = connected();
    const node = new Redis(servers[0]?.url ?? "");
    for (const name of names) await node.set(name, `x${"0".repeat(40)}`);
    const register = protocolOf(redlock).keys.sideKey("leader:odd", `${long}:register`);
    await node.set(register, "");
    onTestFinished(async () => {
      await node.del(register, ...names);
      node.disconnect();
    });
    const { url } = await serve({ elections: ["odd"] });
    await expect.poll(async () => (await stateAt(url)).locks.value?.isComplete).toBe(true);
    const { nodes, locks, elections, schedules } = await stateAt(url, "?findLock=leader:");
    expect([nodes.error, locks.error, schedules.error]).toEqual([undefined, undefined, undefined]);
    const sent = names.map((name) => (name.length > 500 ? `${name.slice(0, 500)}…` : name));
    expect(locks.value?.locks.map(({ resource }) => resource)).toEqual(expect.arrayContaining(sent));
    // The election of another test may still exist.
    expect(elections.map(({ name }) => name)).toContain("odd");
    expect(elections.filter(({ name }) => !/^[\w-]+$/.test(name))).toEqual([]);
  });

  it("contain the schedules, including the schedules of a found scheduler", async () => {
    const redlock = connected();
    const election = new LeaderElection(redlock, { name: "schedules" });
    const scheduler = new LeaderScheduler({ election });
    onTestFinished(() => scheduler.stop({ drainTimeout: 0 }));
    scheduler.every("each-hour", 3_600_000, () => {
      throw new Error("no paper");
    });
    scheduler.start();
    await scheduler.trigger("each-hour");
    await expect
      .poll(async () => (await scheduler.list())[0]?.lastTick, { timeout: 20_000 })
      .toMatchObject({ outcome: "failed" });
    const { url } = await serve({ redlock, elections: [election], schedulers: [scheduler] });
    const found = await serve();
    const [info] = await scheduler.list();
    const shown = {
      name: "each-hour",
      next: info?.next?.getTime(),
      outcome: "failed",
      lateMs: info?.lastTick?.lateMs,
      failure: "Error: no paper",
      paused: false,
      missed: 0,
    };
    expect((await stateAt(url)).schedules.value).toMatchObject({ total: 1, schedules: [shown] });
    await expect
      .poll(async () => (await stateAt(found.url)).schedules.value?.schedules)
      .toEqual(expect.arrayContaining([expect.objectContaining(shown)]));
  });

  it("contain the outcomes of the last ticks of a schedule", async () => {
    const redlock = connected();
    const scheduler = new LeaderScheduler({ election: new LeaderElection(redlock, { name: "histories" }) });
    onTestFinished(() => scheduler.stop({ drainTimeout: 0 }));
    let runs = 0;
    scheduler.every("each-hour", 3_600_000, () => {
      runs += 1;
      if (runs === 2) throw new Error("no paper");
    });
    scheduler.start();
    const outcomes = async (): Promise<readonly string[]> =>
      (await scheduler.history("each-hour")).map(({ outcome }) => outcome);
    const { url } = await serve({ redlock, schedulers: [scheduler] });
    const { latest } = listen(url);
    const shownTicks = (): readonly TickMark[] => latest()?.schedules.value?.schedules[0]?.history ?? [];
    const shown = (): readonly string[] => shownTicks().map(({ outcome }) => outcome);
    for (const expected of [["run"], ["failed", "run"], ["run", "failed", "run"]]) {
      await scheduler.trigger("each-hour");
      await expect.poll(outcomes, { timeout: 20_000 }).toEqual(expected);
      await expect.poll(shown, { timeout: 20_000 }).toEqual(expected);
    }
    const told = (await scheduler.history("each-hour")).map(({ outcome, scheduledAt, tookMs, attempt, error }) => ({
      outcome,
      at: scheduledAt.getTime(),
      tookMs,
      attempt,
      ...(error === undefined ? {} : { error }),
    }));
    const { text } = await ask(`${url}history?scheduler=0&name=each-hour`);
    expect(JSON.parse(text)).toMatchObject({ ticks: told });
    expect(shownTicks().map(({ at }) => at)).toEqual(told.map(({ at }) => at));
    expect(text).toContain("Error: no paper");
    expect((await ask(`${url}history?scheduler=0&name=other`)).status).toBe(404);
    expect((await ask(`${url}history?scheduler=1&name=each-hour`)).status).toBe(404);
  });

  it("contain the keys: the longest lines first, running jobs, and why jobs wait", async () => {
    const redis = servers[0]?.url ?? "";
    const connection = { url: redis, maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("page", { connection });
    const ends: (() => void)[] = [];
    const worker = new ExclusiveWorker("page", () => new Promise<void>((resolve) => ends.push(resolve)), {
      connection,
      key: "account",
      concurrency: 5,
    });
    onTestFinished(async () => {
      const closing = worker.close();
      const ending = setInterval(() => ends.splice(0).forEach((end) => end()), 20);
      await closing;
      clearInterval(ending);
      await queue.close();
    });
    const { url } = await serve({ queues: [queue] });
    await queue.addBulk(["42", "42", "7", "42", "7"].map((account) => ({ name: "charge", data: { account } })));
    await expect.poll(async () => (await queue.counts()).parked).toBe(3);
    const { keys, queues } = await stateAt(url);
    expect(keys?.keys.map(({ key, parked }) => [key, parked])).toEqual([
      ["42", 2],
      ["7", 1],
    ]);
    const listed = await queue.listKeys();
    expect(keys?.keys[0]?.holder).toBe(listed.find(({ key }) => key === "42")?.holder);
    expect(queues).toMatchObject([
      { name: "page", running: 2, runnable: 0, limited: 0, busyKeys: 2, parked: 3, longestLine: 2, pausedKeys: 0 },
    ]);
    const { key: opened } = await stateAt(url, "?queue=page&key=42");
    const { parked } = await queue.jobsOf("42");
    expect(opened?.value).toMatchObject({ key: "42", parked: 2, holder: keys?.keys[0]?.holder });
    const lined = opened?.value?.jobs.filter(({ verdict }) => verdict === "parked");
    expect(lined?.map(({ id }) => id)).toEqual(parked);
    expect(lined?.[0]?.message).toBe((await queue.explain(parked[0] ?? ""))?.message);
    expect((await stateAt(url, "?findKey=7")).keys).toMatchObject({ found: 1, total: 2, keys: [{ key: "7" }] });
  });

  it("contain one page of many rows, and other pages on request", async () => {
    const redlock = connected();
    const { url } = await serve({ redlock });
    const locks = await Promise.all(
      Array.from({ length: 30 }, (_, at) => redlock.acquire(`many:${at}`, { ttl: 60_000 })),
    );
    onTestFinished(async () => {
      await Promise.all(locks.map((lock) => lock.release()));
    });
    const first = await stateAt(url, "?findLock=many:");
    const second = await stateAt(url, "?findLock=many:&locks=1");
    expect(first.locks.value?.found).toBe(30);
    const names = [...(first.locks.value?.locks ?? []), ...(second.locks.value?.locks ?? [])].map(
      ({ resource }) => resource,
    );
    expect(names.sort()).toEqual(locks.map(({ resources: [name = ""] }) => name).sort());
  });

  it("come as changes to a browser that asks for them, in a part of the bytes", async () => {
    const redlock = connected();
    const locks = await Promise.all(
      Array.from({ length: 20 }, async (_, at) => await redlock.acquire(`changes:${at}`, { ttl: 60_000 })),
    );
    const { url } = await serve({ redlock });
    const [whole, changes] = [listen(url, "?findLock=changes:"), listen(url, "?findLock=changes:&changes=1")];
    await expect.poll(changes.looks).toBeGreaterThan(5);
    expect(changes.bytes()).toBeGreaterThan(0);
    expect(changes.bytes()).toBeLessThan(whole.bytes() / 2);
    await locks[7]?.release();
    const found = ({ latest }: typeof whole): unknown => latest()?.locks.value?.found;
    await expect.poll(() => [found(whole), found(changes)]).toEqual([19, 19]);
    const names = ({ latest }: typeof whole): unknown => latest()?.locks.value?.locks.map(({ resource }) => resource);
    await expect.poll(() => names(changes)).toEqual(names(whole));
    await Promise.all(locks.map(async (lock) => await lock.release()));
  });

  it("contain the application's notes for everybody", async () => {
    const { page, url } = await serve();
    page.note("version 7 was deployed");
    page.note("lock node 3 killed", { kind: "fault" });
    expect((await stateAt(url)).events).toMatchObject([
      { kind: "fault", text: "lock node 3 killed" },
      { kind: "note", text: "version 7 was deployed" },
    ]);
    expect(() => page.note("x", { kind: "other" as "note" })).toThrow(
      new RangeError('kind must be "note" or "fault", got "other"'),
    );
  });
});

describe("a Redis that is lost", () => {
  it("is reported, and so is its return", async () => {
    const nodes = await startRedisNodes(3);
    onTestFinished(async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    });
    const redlock = connected(nodes);
    const { url } = await serve({ redlock });
    const { latest } = listen(url);
    await expect.poll(() => latest()?.nodes.value?.answering).toBe(3);
    await nodes[0]?.kill();
    await expect.poll(() => latest()?.nodes.value?.answering).toBe(2);
    expect(latest()?.nodes.value?.nodes[0]?.error).toEqual(expect.any(String));
    expect(latest()?.locks.error).toBeUndefined();
    await nodes[1]?.kill();
    await expect.poll(() => latest()?.locks.error).toBe("1 of 3 nodes answer, 2 make a quorum");
    await Promise.all([nodes[0]?.start(), nodes[1]?.start()]);
    await expect.poll(() => latest()?.nodes.value?.answering, { timeout: 20_000 }).toBe(3);
    expect(latest()?.locks.error).toBeUndefined();
    const lock = await redlock.acquire("page:back");
    await expect.poll(() => lockIn(latest(), "page:back")).toMatchObject({ state: "held" });
    await lock.release();
  });

  it("does not hide the others", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const queue = new ExclusiveQueue("lost", {
      connection: { url: redis.url, maxRetriesPerRequest: null },
    });
    queue.on("error", () => undefined);
    onTestFinished(() => queue.close());
    const { url } = await serve({ queues: [queue] });
    const { latest } = listen(url);
    await expect.poll(() => latest()?.queues[0]?.at).toEqual(expect.any(Number));
    await redis.kill();
    await expect.poll(() => latest()?.queues[0]?.error).toEqual(expect.any(String));
    expect(latest()?.nodes.value?.answering).toBe(3);
    await redis.start();
    await expect.poll(() => latest()?.queues[0]?.error, { timeout: 20_000 }).toBeUndefined();
  });
});

it("counts runnable jobs, and jobs of rate-limited keys", async () => {
  const connection = { url: servers[0]?.url ?? "", maxRetriesPerRequest: null };
  const queue = new ExclusiveQueue("backlog", { connection });
  const perKey = { rate: { max: 1, duration: 3_600_000 } };
  const worker = new ExclusiveWorker("backlog", () => Promise.resolve(), {
    connection,
    key: "account",
    autorun: false,
    perKey,
  });
  onTestFinished(async () => {
    await worker.close();
    await queue.close();
  });
  const { url } = await serve({ queues: [queue] });
  await queue.addBulk(["42", "42", "42", "7"].map((account) => ({ name: "charge", data: { account } })));
  const shown = async (): Promise<unknown> => (await stateAt(url)).queues[0];
  await expect.poll(shown).toMatchObject({ runnable: 4, running: 0, parked: 0, limited: 0 });
  void worker.run();
  await expect.poll(shown).toMatchObject({ runnable: 0, running: 0, parked: 2, limited: 2 });
});

it("sends nothing to Redis without a browser, and no more for many browsers than for one", async () => {
  const node = await startRedis();
  onTestFinished(() => node.stop());
  const { url } = await serve({ redlock: connected([node]) });
  const { looks, end } = listen(url);
  const others = Array.from({ length: 5 }, () => listen(url));
  await expect.poll(() => others.every(({ latest }) => latest() !== undefined)).toBe(true);
  const callsOf = (): Promise<number> => node.calls("evalsha");
  const from = looks();
  const calls = await callsOf();
  await expect.poll(() => looks() - from).toBeGreaterThan(5);
  const asked = (await callsOf()) - calls;
  // One request for each look, at some looks one for the quarantine, and a few at the beginning, but not one for each
  // browser.
  expect(asked).toBeLessThanOrEqual(2 * (looks() - from + 2) + 4);
  end();
  for (const other of others) other.end();
  let before = -1;
  await expect
    .poll(
      async () => {
        const now = await callsOf();
        const isQuiet = now === before;
        before = now;
        return isQuiet;
      },
      { interval: 5 * REFRESH },
    )
    .toBe(true);
});

it("looks through ten thousand locks step by step, and sends a browser a page of them", {
  timeout: 60_000,
}, async () => {
  const node = await startRedis();
  onTestFinished(() => node.stop());
  const client = new Redis(node.url);
  onTestFinished(() => client.disconnect());
  const filling = client.pipeline();
  for (let at = 0; at < 10_000; at += 1) filling.set(`many:${at}`, `x${String(at).padStart(40, "0")}`, "PX", 600_000);
  await filling.exec();
  const { url } = await serve({ redlock: connected([node]) });
  const counts: number[] = [];
  await expect
    .poll(
      async () => {
        const { locks } = await stateAt(url);
        if (locks.value?.total !== counts.at(-1)) counts.push(locks.value?.total ?? 0);
        return locks.value?.isComplete === true ? locks.value.total : 0;
      },
      { timeout: 40_000, interval: REFRESH },
    )
    .toBe(10_000);
  // SCAN also returns the rest of a bucket, and therefore a little more than requested.
  const steps = counts.map((count, at) => count - (counts[at - 1] ?? 0));
  expect(Math.max(...steps)).toBeLessThan(3_000);
  const { text } = await ask(`${url}state?locks=17`);
  expect(text.length).toBeLessThan(20_000);
  expect((JSON.parse(text) as PageState).locks.value?.locks).toHaveLength(25);
});

it("finds the text of each of many browsers, and cuts long names", async () => {
  const redlock = connected();
  const long = `wanted:${"x".repeat(3_000)}`;
  const names = [...Array.from({ length: 15 }, (_, at) => `wanted:${at}:`), long];
  const locks = await Promise.all(names.map(async (name) => await redlock.acquire(name, { ttl: 60_000 })));
  onTestFinished(async () => {
    await Promise.all(locks.map(async (lock) => await lock.release()));
  });
  const { url } = await serve({ redlock });
  const viewers = names.map((name) => listen(url, `?findLock=${name.slice(0, 200)}`));
  const shown = (): readonly (string | undefined)[] =>
    viewers.map(({ latest }) => latest()?.locks.value?.locks[0]?.resource);
  await expect.poll(shown, { timeout: 30_000 }).toEqual([...names.slice(0, -1), `${long.slice(0, 500)}…`]);
  expect(JSON.stringify(viewers.map(({ latest }) => latest()))).not.toContain("x".repeat(501));
});

it("works in NestJS and Express, behind body parsers", async () => {
  const redlock = connected();
  const page = createPage({ redlock, actions: true });
  const app = await NestFactory.create(AppModule, { logger: false });
  app.use("/admin/coordination", nodeListener(page));
  await app.listen(0, "127.0.0.1");
  onTestFinished(async () => {
    await page.close();
    await app.close();
  });
  const { port } = app.getHttpServer().address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/admin/coordination/`;
  const { status, headers } = await ask(url.slice(0, -1));
  expect([status, headers.location]).toEqual([308, "./coordination/"]);
  const { text } = await ask(url);
  expect((await stateAt(url)).actions).toBe(true);
  const live = listen(url);
  await expect.poll(() => live.latest()?.nodes.value?.answering).toBe(3);
  live.end();
  const token = /x-console-token" content="([^"]*)"/.exec(text)?.[1] ?? "";
  const lock = await redlock.acquire("page:nest");
  const acted = await ask(`${url}act?do=release-lock&resource=page:nest`, {
    method: "POST",
    headers: { origin: new URL(url).origin, "x-console-token": token },
  });
  expect(acted.status).toBe(200);
  await expect(lock.extend()).rejects.toThrow("page:nest");
});

it("costs one command a look for a queue, even with an opened key, and shows an odd key's error next to the queue", async () => {
  const node = await startRedis();
  onTestFinished(() => node.stop());
  const queue = new ExclusiveQueue("small", { connection: { url: node.url, maxRetriesPerRequest: null } });
  onTestFinished(() => queue.close());
  const client = new Redis(node.url);
  onTestFinished(() => client.disconnect());
  await client.hset("bull:small:lane:holders", "account:7", "job7");
  await client.hset("bull:small:job7", { lk: "account:7", name: "charge", processedOn: Date.now() });
  const { url } = await serve({ queues: [queue] });
  const { latest, looks, end } = listen(url, "?queue=small&key=account:7");
  await expect.poll(() => latest()?.key?.value).toMatchObject({ key: "account:7", holder: "job7" });
  const [from, calls] = [looks(), await node.calls("evalsha")];
  await expect.poll(() => looks() - from).toBeGreaterThan(10);
  const asked = (await node.calls("evalsha")) - calls;
  // A look may have begun before the first count, and another before the second.
  expect(asked).toBeLessThanOrEqual(looks() - from + 2);
  // Each look reads the opened key again.
  await client.hset("bull:small:lane:holders", "account:7", "job8");
  await client.hset("bull:small:job8", { lk: "account:7", name: "charge", processedOn: Date.now() });
  await expect.poll(() => latest()?.key?.value?.holder).toBe("job8");
  end();
  const odd = listen(url, `?queue=small&key=${"x".repeat(600)}`);
  await expect.poll(() => odd.latest()?.key?.error).toContain("key must be");
  const seen = odd.looks();
  await expect.poll(() => odd.looks()).toBeGreaterThan(seen + 2);
  expect(odd.latest()?.queues[0]).toMatchObject({ busyKeys: 1 });
  expect(odd.latest()?.queues[0]?.error).toBeUndefined();
});

it("costs two commands and two kilobytes a look on average for a queue of ten thousand keys", {
  timeout: 60_000,
}, async () => {
  const node = await startRedis();
  onTestFinished(() => node.stop());
  const client = new Redis(node.url);
  onTestFinished(() => client.disconnect());
  const filling = client.pipeline();
  for (let at = 0; at < 10_000; at += 1) {
    filling.hset("bull:many:lane:holders", `account:${at}`, `job${at}`);
    filling.hset(`bull:many:job${at}`, { lk: `account:${at}`, name: "charge", processedOn: Date.now() });
  }
  await filling.exec();
  const queue = new ExclusiveQueue("many", { connection: { url: node.url, maxRetriesPerRequest: null } });
  onTestFinished(() => queue.close());
  const { url } = await serve({ queues: [queue] });
  const { latest, looks, bytes } = listen(url, "?queue=many&key=account:7&changes=1");
  await expect.poll(() => latest()?.keys?.found, { timeout: 20_000 }).toBe(10_000);
  expect(latest()?.keys?.keys).toHaveLength(25);
  expect(latest()?.key?.value).toMatchObject({ key: "account:7", holder: "job7", jobs: [{ id: "job7" }] });
  const [from, calls] = [looks(), await node.calls("evalsha")];
  const sizes: number[] = [];
  await expect
    .poll(
      () => {
        sizes.push(bytes());
        return looks() - from;
      },
      { timeout: 40_000 },
    )
    .toBeGreaterThan(40);
  const asked = (await node.calls("evalsha")) - calls;
  // 20 commands list the keys once in 21 looks, and the first of them reads the queue and the opened key. At each other
  // look one command reads the opened key. A part of a second list may be in the measured looks.
  expect(asked / (looks() - from)).toBeLessThan(2.5);
  expect(sizes.reduce((sum, size) => sum + size, 0) / sizes.length).toBeLessThan(2_000);
  // A group of the keys costs no command. The groups contain all keys.
  expect(latest()?.keys?.groups).toMatchObject({ counts: { waiting: 0, halted: 0 }, fifth: 0 });
  await client.hset("bull:many:lane:paused", "account:9", JSON.stringify({ reason: "audit", since: Date.now() }));
  const paused = listen(url, "?queue=many&keyGroup=paused");
  await expect.poll(() => paused.latest()?.keys?.found, { timeout: 20_000 }).toBe(1);
  expect(paused.latest()?.keys).toMatchObject({ keys: [{ key: "account:9", state: "paused" }], total: 10_000 });
});

describe("problems", () => {
  const problem = (state: PageState | undefined, code: string): PageState["problems"][number] | undefined =>
    state?.problems.find((each) => each.code === code);
  const connectionTo = (url = servers[0]?.url ?? ""): { url: string; maxRetriesPerRequest: null } => ({
    url,
    maxRetriesPerRequest: null,
  });

  it("are a queue without a worker, until one runs", async () => {
    const queue = new ExclusiveQueue("idle", { connection: connectionTo() });
    onTestFinished(() => queue.close());
    await queue.add("charge", { account: "42" });
    const { url } = await serve({ queues: [queue] });
    const { latest } = listen(url);
    await expect
      .poll(() => problem(latest(), "NO_WORKER"))
      .toMatchObject({
        severity: "critical",
        title: "Queue idle has no worker, and of its jobs 1 can run",
      });
    expect(latest()?.events[0]).toMatchObject({ kind: "page", text: expect.stringContaining("idle has no worker") });
    const worker = new ExclusiveWorker("idle", () => Promise.resolve(), { connection: connectionTo(), key: "account" });
    onTestFinished(() => worker.close());
    await expect.poll(() => problem(latest(), "NO_WORKER")?.solvedAt).toEqual(expect.any(Number));
    expect(latest()?.processes).toMatchObject([
      { isGone: false, workers: [{ queue: "idle", slots: 1, version: expect.any(String) }] },
    ]);
    expect(latest()?.queues).toMatchObject([{ name: "idle", workers: 1, slots: 1 }]);
  });

  it("are workers that were killed: their jobs are not shown as running", async () => {
    const client = new Redis(servers[0]?.url ?? "");
    onTestFinished(() => client.disconnect());
    const queue = new ExclusiveQueue("killed", { connection: connectionTo() });
    const ends: (() => void)[] = [];
    const worker = new ExclusiveWorker("killed", () => new Promise<void>((resolve) => ends.push(resolve)), {
      connection: connectionTo(),
      key: "account",
      concurrency: 2,
      skipStalledCheck: true,
      skipLockRenewal: true,
    });
    onTestFinished(async () => {
      for (const end of ends) end();
      await worker.close();
      await queue.close();
    });
    await queue.addBulk(["42", "42"].map((account) => ({ name: "charge", data: { account } })));
    await expect.poll(async () => (await queue.counts()).parked).toBe(1);
    const { url } = await serve({ queues: [queue] });
    const { latest } = listen(url, "?queue=killed&key=42");
    await expect.poll(() => latest()?.queues[0]).toMatchObject({ running: 1, stalled: 0, workers: 1 });
    // The state after the process was killed: the lock of its job has expired, and it has not reported for 45 s.
    await client.del("bull:killed:1:lock");
    await expect
      .poll(() => problem(latest(), "JOBS_STALLED")?.title)
      .toBe("1 job of queue killed had started, and its worker is gone");
    const [id, entry] = Object.entries(await client.hgetall("bull:killed:lane:workers"))[0] ?? ["", ""];
    const [seconds, text] = [entry.slice(0, entry.indexOf(" ")), entry.slice(entry.indexOf(" "))];
    await client.hset("bull:killed:lane:workers", id, `${Number(seconds) - 45}${text}`);
    await expect.poll(() => problem(latest(), "NO_WORKER")?.title).toContain("Queue killed has no worker");
    expect(latest()?.queues[0]).toMatchObject({ running: 0, stalled: 1, workers: 0, goneWorkers: 1 });
    expect(latest()?.processes).toMatchObject([{ isGone: true }]);
    expect(latest()?.key?.value?.jobs.map(({ id: job, verdict }) => [job, verdict])).toEqual([
      ["1", "stalled"],
      ["2", "parked"],
    ]);
    expect(latest()?.key?.value?.message).toContain("its worker is gone");
  });

  it("are a halted key, with the action that resumes it", async () => {
    const queue = new ExclusiveQueue("halts", { connection: connectionTo() });
    const worker = new ExclusiveWorker("halts", (): Promise<void> => Promise.reject(new Error("no")), {
      connection: connectionTo(),
      key: "account",
      onFailure: "halt",
    });
    onTestFinished(async () => {
      await worker.close();
      await queue.close();
    });
    await queue.addBulk(["42", "42"].map((account) => ({ name: "charge", data: { account } })));
    const { url } = await serve({ queues: [queue], actions: true });
    const { latest } = listen(url);
    await expect
      .poll(() => problem(latest(), "KEY_HALTED"))
      .toMatchObject({
        title: "Key 42 of queue halts is halted after job 1 failed, and 1 job waits",
        place: { queue: "halts", key: "42" },
      });
    expect(latest()?.keys?.keys).toMatchObject([{ key: "42", state: "halted", why: "halted after job 1" }]);
    const { do: action = "", parameters = {} } = problem(latest(), "KEY_HALTED")?.action ?? {};
    expect((await act(url, { do: action, ...parameters })).status).toBe(200);
  });

  it("are a schedule that fails, and a gap without a leader", async () => {
    const redlock = connected();
    const election = new LeaderElection(redlock, { name: "fails", leaseDuration: 1_500, renewDeadline: 1_000 });
    const scheduler = new LeaderScheduler({ election });
    onTestFinished(() => scheduler.stop({ drainTimeout: 0 }));
    scheduler.on("tickFailed", () => undefined);
    scheduler.every("hourly", 3_600_000, () => {
      throw new Error("no paper");
    });
    scheduler.start();
    const { url } = await serve();
    const { latest } = listen(url);
    for (const count of [1, 2]) {
      await scheduler.trigger("hourly");
      await expect
        .poll(async () => (await scheduler.history("hourly")).filter(({ outcome }) => outcome === "failed").length, {
          timeout: 20_000,
        })
        .toBe(count);
    }
    await expect
      .poll(() => problem(latest(), "SCHEDULE_FAILING")?.title, { timeout: 20_000 })
      .toBe("Schedule hourly has failed 2 ticks in a row: Error: no paper");
    await redlock.close();
    await expect
      .poll(() => problem(latest(), "NO_LEADER")?.title, { timeout: 20_000 })
      .toBe("Election fails has no leader");
  });

  it("are a node that was down and is in quarantine, and a quorum that is away", async () => {
    const nodes = await startRedisNodes(3);
    onTestFinished(async () => {
      await Promise.all(nodes.map((each) => each.stop()));
    });
    const redlock = new Redlock(
      nodes.map((each) => each.url),
      { ttl: 1_000, maxTtl: 20_000 },
    );
    onTestFinished(() => redlock.close());
    const { url } = await serve({ redlock });
    const { latest } = listen(url);
    await expect.poll(() => latest()?.live).toMatchObject({ isLive: true });
    await nodes[0]?.kill();
    await expect.poll(() => problem(latest(), "NODE_DOWN")?.title).toContain("does not answer");
    await nodes[1]?.kill();
    await expect.poll(() => problem(latest(), "NO_QUORUM")?.title).toBe("1 of 3 lock nodes answer, and 2 are needed");
    expect(latest()?.live).toMatchObject({ isLive: false, error: "1 of 3 nodes answer, 2 make a quorum" });
    await Promise.all([nodes[0]?.start(), nodes[1]?.start()]);
    await expect.poll(() => problem(latest(), "NO_QUORUM")?.solvedAt, { timeout: 20_000 }).toEqual(expect.any(Number));
    await expect
      .poll(() => problem(latest(), "NODE_QUARANTINED")?.title, { timeout: 20_000 })
      .toContain("is in quarantine");
    // Each of the two nodes has one mark on the time line, as its process is another one.
    const restarted = (): unknown =>
      latest()?.events.filter(({ text }) => text.endsWith("has restarted or was replaced"));
    await expect.poll(restarted).toMatchObject([{ kind: "page" }, { kind: "page" }]);
  });

  it("are an outbox whose jobs wait", async () => {
    const mail = { backlog: async () => await Promise.resolve({ rows: 7, oldestMs: 61_000 }) };
    const { url } = await serve({ outboxes: { mail } });
    const { latest } = listen(url);
    await expect.poll(() => problem(latest(), "OUTBOX_BACKLOG")?.title).toBe("7 jobs of outbox mail wait for a relay");
  });
});

const TOKEN = "a-token-that-replicas-share";

const tokenOf = async (url: string): Promise<string> =>
  /x-console-token" content="([^"]*)"/.exec((await ask(url)).text)?.[1] ?? "";

async function act(
  url: string,
  about: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  return await ask(`${url}act?${new URLSearchParams(about).toString()}`, {
    method: "POST",
    headers: { origin: new URL(url).origin, "x-console-token": await tokenOf(url), ...headers },
  });
}

describe("outboxes", () => {
  it("show the waiting jobs, the age of the oldest job, and whether the number grows", async () => {
    const backlogs = [
      { rows: 10, oldestMs: 1_500 },
      { rows: 40, oldestMs: 6_500 },
      { rows: 0, oldestMs: 0 },
    ];
    const payments = { backlog: async () => await Promise.resolve(backlogs.shift() ?? { rows: 0, oldestMs: 0 }) };
    const { url } = await serve({ outboxes: { payments } });
    const seen: PageState["outboxes"][number][] = [];
    const { latest } = listen(url);
    await expect
      .poll(
        () => {
          const [outbox] = latest()?.outboxes ?? [];
          if (outbox !== undefined && seen.at(-1)?.at !== outbox.at) seen.push(outbox);
          return seen.length;
        },
        { timeout: 20_000 },
      )
      .toBe(3);
    expect(seen).toMatchObject([
      { name: "payments", rows: 10, oldestMs: 1_500 },
      { name: "payments", rows: 40, oldestMs: 6_500 },
      { name: "payments", rows: 0, oldestMs: 0 },
    ]);
    expect(seen[0]?.growth).toBeUndefined();
    expect(seen[1]?.growth).toBeGreaterThan(0);
    expect(seen[2]?.growth).toBeLessThan(0);
  });

  it("are counted at every fifth look, and not again while their database hangs", async () => {
    let asked = 0;
    const hanging = {
      backlog: (): Promise<never> => {
        asked += 1;
        return new Promise(() => undefined);
      },
    };
    const { url } = await serve({ outboxes: { hanging } });
    const { latest, looks } = listen(url);
    await expect.poll(() => latest()?.outboxes[0]?.error, { timeout: 20_000 }).toBe("no answer from Postgres");
    const before = looks();
    await expect.poll(() => looks() - before, { timeout: 20_000 }).toBeGreaterThan(5);
    expect(asked).toBe(1);
    expect(latest()?.nodes.value?.answering).toBe(3);
  });

  it("show why they cannot be read, without a password", async () => {
    const refused = new Error("connect ECONNREFUSED postgres://shop:PW-secret@db:5432/shop");
    const { url } = await serve({ outboxes: { away: { backlog: () => Promise.reject(refused) } } });
    const { text } = await ask(`${url}state`);
    expect((JSON.parse(text) as PageState).outboxes).toMatchObject([
      { name: "away", rows: 0, error: expect.stringContaining("ECONNREFUSED") },
    ]);
    expect(text).not.toContain("PW-secret");
  });

  it("are objects that report a backlog, twenty at most", () => {
    const redlock = connected();
    const outbox = { backlog: () => Promise.reject(new Error("not asked")) };
    const many = Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`o${n}`, outbox]));
    const rule = /^outboxes must be an object with 20 Effects \(of @x\/effects\) at most, by name, got /;
    for (const outboxes of [many, { one: {} }, { one: null }, outbox] as unknown as Record<string, typeof outbox>[]) {
      expect(() => createPage({ redlock, outboxes })).toThrow(rule);
    }
  });
});

describe("actions", () => {
  it("call the methods of the packages", async () => {
    const redlock = connected();
    const redis = servers[0]?.url ?? "";
    const queue = new ExclusiveQueue("actions", {
      connection: { url: redis, maxRetriesPerRequest: null },
    });
    onTestFinished(() => queue.close());
    const election = new LeaderElection(redlock, { name: "actions" });
    onTestFinished(() => election.stop({ drainTimeout: 0 }));
    const scheduler = new LeaderScheduler({ election });
    scheduler.every("hourly", 3_600_000, () => undefined);
    const { url } = await serve({
      redlock,
      elections: [election],
      schedulers: [scheduler],
      queues: [queue],
      actions: true,
    });

    const lock = await redlock.acquire("page:taken", { ttl: 30_000 });
    const taken = await act(url, { do: "release-lock", resource: "page:taken" });
    expect(JSON.parse(taken.text)).toEqual({ isDone: true, message: "page:taken was taken away" });
    await expect(lock.extend()).rejects.toThrow("page:taken");

    const term = await election.campaign();
    const asked = new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
    expect((await act(url, { do: "resign", election: "actions" })).status).toBe(200);
    await asked;

    const aboutKey = { queue: "actions", key: "42" };
    expect((await act(url, { do: "pause-key", ...aboutKey })).status).toBe(200);
    expect(await queue.listKeys()).toMatchObject([{ key: "42", paused: { reason: "paused on the page" } }]);
    expect((await act(url, { do: "resume-key", ...aboutKey })).status).toBe(200);
    expect(await queue.listKeys()).toEqual([]);
    await queue.setKeyPolicy("42", { concurrency: 3 });
    expect((await act(url, { do: "remove-policy", ...aboutKey })).status).toBe(200);
    expect(await queue.getKeyPolicy("42")).toBeUndefined();
    expect(JSON.parse((await act(url, { do: "remove-policy", ...aboutKey })).text)).toEqual({
      isDone: false,
      message: "key 42 had no policy",
    });

    const { id } = await queue.add("job", { k: "42" });
    const cancel = { do: "cancel-job", ...aboutKey, jobId: String(id) };
    expect(JSON.parse((await act(url, cancel)).text)).toEqual({
      isDone: true,
      message: `job ${id} was waiting, and is cancelled`,
    });
    expect((await queue.getJob(String(id)))?.failedReason).toContain("cancelled on the page");
    expect(JSON.parse((await act(url, cancel)).text)).toMatchObject({ isDone: false });

    const limits = { concurrency: "2", rateMax: "100", rateMs: "60000", maxWaiting: "50", drop: "oldest" };
    expect(JSON.parse((await act(url, { do: "set-policy", ...aboutKey, ...limits })).text)).toEqual({
      isDone: true,
      message: "key 42 from now on: 2 at a time, 100 start in 1 min 0 s, 50 wait",
    });
    expect(await queue.getKeyPolicy("42")).toEqual({
      concurrency: 2,
      rate: { max: 100, duration: 60_000 },
      maxWaiting: { max: 50, drop: "oldest" },
    });
    // Every action is a mark on the time line, for everybody.
    expect((await stateAt(url)).events[0]).toMatchObject({
      kind: "note",
      text: expect.stringContaining("from now on"),
    });
    for (const [wrong, rule] of [
      [{}, "policy must have one of"],
      [{ concurrency: "0" }, "policy.concurrency must be an integer from 1 to 100, got 0"],
      [{ concurrency: "two" }, 'concurrency must be a whole number, got "two"'],
      [{ rateMax: "5" }, "rateMax and rateMs belong together"],
      [{ weight: "1e3" }, "weight must be a whole number"],
    ] as const) {
      const { status, text } = await act(url, { do: "set-policy", ...aboutKey, ...wrong });
      expect([status, text]).toEqual([400, expect.stringContaining(rule)]);
    }
    expect(await queue.getKeyPolicy("42")).toMatchObject({ concurrency: 2 });
    await queue.removeKeyPolicy("42");

    const removed = String((await queue.add("job", { k: "42" })).id);
    const remove = { do: "remove-job", ...aboutKey, jobId: removed };
    expect(JSON.parse((await act(url, remove)).text)).toEqual({
      isDone: true,
      message: `job ${removed} was waiting, and is removed`,
    });
    expect(await queue.getJob(removed)).toBeUndefined();
    expect(JSON.parse((await act(url, remove)).text)).toMatchObject({ isDone: false });

    const aboutSchedule = { scheduler: "0", name: "hourly" };
    expect((await act(url, { do: "pause-schedule", ...aboutSchedule })).status).toBe(200);
    expect(await scheduler.list()).toMatchObject([{ paused: true }]);
    expect((await act(url, { do: "resume-schedule", ...aboutSchedule })).status).toBe(200);
    expect(await scheduler.list()).toMatchObject([{ paused: false }]);
    expect((await act(url, { do: "trigger-schedule", ...aboutSchedule })).status).toBe(200);
    expect((await stateAt(url)).events[0]?.text).toBe("schedule hourly was triggered");
  });

  it("run a failed job again before the jobs in line, and remove the jobs in line", async () => {
    const connection = { url: servers[0]?.url ?? "", maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("mended", { connection });
    onTestFinished(() => queue.close());
    let isMended = false;
    const ran: string[] = [];
    const run = async (job: { readonly id?: string | undefined }): Promise<void> => {
      if (!isMended) throw new Error("no paper");
      await Promise.resolve(ran.push(job.id ?? ""));
    };
    const worker = new ExclusiveWorker("mended", run, { connection, key: "account", onFailure: "halt" });
    onTestFinished(() => worker.close());
    await queue.addBulk(["42", "42", "42"].map((account) => ({ name: "charge", data: { account } })));
    await expect.poll(async () => (await queue.listKeys())[0]?.paused?.jobId).toBe("1");
    const { url } = await serve({ queues: [queue], actions: true });
    const about = { do: "retry-job", queue: "mended", key: "42" };
    const early = await act(url, { ...about, jobId: "2" });
    expect(JSON.parse(early.text)).toEqual({ isDone: false, message: "job 2 is delayed: key 42 stays as it is" });
    expect((await queue.listKeys())[0]?.paused?.jobId).toBe("1");
    isMended = true;
    expect(JSON.parse((await act(url, { ...about, jobId: "1" })).text)).toEqual({
      isDone: true,
      message: "job 1 runs again, and key 42 goes on",
    });
    await expect.poll(() => ran).toEqual(["1", "2", "3"]);
    isMended = false;
    await queue.addBulk(["7", "7", "7"].map((account) => ({ name: "charge", data: { account } })));
    await expect.poll(async () => (await queue.listKeys())[0]?.paused?.jobId).toBe("4");
    const line = { do: "remove-jobs", queue: "mended", key: "7" };
    expect(JSON.parse((await act(url, line)).text)).toEqual({
      isDone: true,
      message: "2 jobs in line for key 7 are removed",
    });
    expect(await queue.jobsOf("7")).toMatchObject({ parked: [] });
    expect((await queue.listKeys())[0]?.paused?.jobId).toBe("4");
    expect(JSON.parse((await act(url, line)).text)).toMatchObject({ isDone: false });
    const none = await act(url, { ...about, jobId: "77" });
    expect(JSON.parse(none.text)).toMatchObject({
      isDone: false,
      message: "job 77 does not exist: key 42 stays as it is",
    });
  });

  it("are refused for a queue whose Redis is away, and not done when it is back", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const queue = new ExclusiveQueue("away", {
      connection: { url: redis.url, maxRetriesPerRequest: null },
    });
    queue.on("error", () => undefined);
    onTestFinished(() => queue.close());
    const { url } = await serve({ queues: [queue], actions: true });
    const { latest } = listen(url);
    await expect.poll(() => latest()?.queues[0]?.at).toEqual(expect.any(Number));
    await redis.kill();
    await expect.poll(() => latest()?.queues[0]?.error).toEqual(expect.any(String));
    const refused = await act(url, { do: "pause-key", queue: "away", key: "42" });
    expect([refused.status, refused.text]).toEqual([503, expect.stringContaining("Not done. Queue away")]);
    expect((await stateAt(url, "?queue=away&key=42")).key?.error).toEqual(expect.any(String));
    await redis.start();
    await expect.poll(() => latest()?.queues[0]?.error, { timeout: 20_000 }).toBeUndefined();
    expect(await queue.listKeys()).toEqual([]);
  });

  it("reach the scheduler that was shown, also in a process that has found nothing yet", async () => {
    const node = await startRedis();
    onTestFinished(() => node.stop());
    const election = new LeaderElection(connected([node]), { name: "replicas" });
    const scheduler = new LeaderScheduler({ election, keyPrefix: "reports" });
    onTestFinished(() => scheduler.stop({ drainTimeout: 0 }));
    scheduler.every("hourly", 3_600_000, () => undefined);
    scheduler.start();
    const first = await serve({ redlock: connected([node]) });
    const shown = async (): Promise<PageState["schedules"]["value"]> => (await stateAt(first.url)).schedules.value;
    await expect.poll(async () => (await shown())?.total, { timeout: 20_000 }).toBe(1);
    const about = { scheduler: String((await shown())?.schedules[0]?.scheduler), name: "hourly" };
    const second = await serve({ redlock: connected([node]), actions: true });
    expect((await act(second.url, { do: "pause-schedule", ...about })).status).toBe(200);
    expect(await scheduler.list()).toMatchObject([{ name: "hourly", paused: true }]);
  });

  it("need queues with different names", () => {
    const [one, two] = ["one", "two"].map((prefix) => {
      const connection = { url: servers[0]?.url ?? "", maxRetriesPerRequest: null };
      const queue = new ExclusiveQueue("same", { connection, prefix });
      onTestFinished(() => queue.close());
      return queue;
    }) as [ExclusiveQueue, ExclusiveQueue];
    expect(() => createPage({ redlock: connected(), queues: [one, two] })).toThrow(
      new RangeError('queues must have distinct names, got "same" twice'),
    );
  });

  it("are refused on a page that is read-only, and its HTML has no token", async () => {
    const { url } = await serve();
    expect(await tokenOf(url)).toBe("");
    expect((await act(url, { do: "release-lock", resource: "page:kept" })).status).toBe(403);
  });

  it.each([
    ["another site's", { origin: "https://evil.example" }],
    ["no site's", { origin: "null" }],
    ["the right site, without the token", { "x-console-token": "" }],
    ["the right site, with a wrong token", { "x-console-token": "x".repeat(32) }],
    ["what the browser calls another site", { "sec-fetch-site": "cross-site" }],
    [
      "what the browser calls a navigation from another site",
      { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" },
    ],
  ])("are refused to %s request", async (_, headers) => {
    const redlock = connected();
    const { url } = await serve({ redlock, actions: true });
    const lock = await redlock.acquire("page:kept", { ttl: 30_000 });
    expect((await act(url, { do: "release-lock", resource: "page:kept" }, headers)).status).toBe(403);
    await lock.extend();
    await lock.release();
  });

  it("are refused without an Origin, and by GET", async () => {
    const { url } = await serve({ actions: true });
    const headers = { "x-console-token": await tokenOf(url) };
    const address = `${url}act?do=release-lock&resource=page:kept`;
    expect((await ask(address, { method: "POST", headers })).status).toBe(403);
    expect((await ask(address, { headers })).status).toBe(405);
  });

  it.each([
    [{ do: "nonsense" }, "there is no action"],
    [{ do: "toString" }, "there is no action"],
    [{ do: "release-lock" }, "resource is missing"],
    [{ do: "pause-key", queue: "none", key: "1" }, "there is no queue"],
    [{ do: "resign", election: "none" }, "there is no election"],
    [{ do: "pause-schedule", scheduler: "9", name: "a" }, "there is no scheduler"],
  ])("answer %j with what is wrong", async (about, message) => {
    const { url } = await serve({ actions: true });
    const { status, text } = await act(url, about);
    expect([status, text]).toEqual([400, expect.stringContaining(message)]);
  });
});

describe("access to the page", () => {
  it.each(["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "localhost:80@evil.example", "a/b"])(
    "answers nothing for the host %j",
    async (host) => {
      const { url } = await serve({ actions: true });
      for (const path of ["", "page.js", "state", "events"]) {
        const { status, text } = await ask(url + path, { headers: { host } });
        expect(status).toBe(421);
        expect(text).not.toContain("nodes");
      }
    },
  );

  it("is allowed for the named hosts, with any port", async () => {
    const { url } = await serve({ hosts: ["ops.example.com", "Other.example:8080", "tls.example:443"] });
    const statusOf = async (host: string): Promise<number> => (await ask(url, { headers: { host } })).status;
    expect(await statusOf("ops.example.com")).toBe(200);
    expect(await statusOf("OPS.example.com:8443")).toBe(200);
    expect(await statusOf("other.example:8080")).toBe(200);
    expect(await statusOf("other.example")).toBe(421);
    expect(await statusOf("tls.example")).toBe(200);
    expect(await statusOf("tls.example:8443")).toBe(421);
    expect(await statusOf("localhost")).toBe(421);
  });

  it("is refused to other sites, except by a link to the page", async () => {
    const { url } = await serve();
    const headers = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors" };
    expect((await ask(`${url}state`, { headers })).status).toBe(403);
    expect((await ask(`${url}events`, { headers })).status).toBe(403);
    expect((await ask(url, { headers: { ...headers, "sec-fetch-mode": "navigate" } })).status).toBe(200);
    // A browser that sends no Sec-Fetch headers.
    const foreign = { origin: "https://evil.example" };
    for (const path of ["state", "events", "history?scheduler=0&name=a"])
      expect((await ask(url + path, { headers: foreign })).status, path).toBe(403);
  });

  it("allows navigation only to the page itself, and no frames", async () => {
    const { page } = await serve({ actions: true });
    const statusOf = async (path: string, [site, mode, dest]: readonly [string, string, string]): Promise<number> => {
      const headers = { "sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest };
      return (await page(new Request(`http://localhost/${path}`, { headers }))).status;
    };
    const data = ["state", "events", "history?scheduler=0&name=a", "act", "page.js"];
    for (const site of ["cross-site", "same-site", "none"]) {
      for (const path of data) expect(await statusOf(path, [site, "navigate", "document"]), path).toBe(403);
      for (const path of ["", ...data]) {
        for (const frame of ["iframe", "frame", "embed", "object"])
          expect(await statusOf(path, [site, "navigate", frame]), `${frame} ${path}`).toBe(403);
      }
      expect(await statusOf("", [site, "navigate", "document"])).toBe(200);
      expect(await statusOf("admin", [site, "navigate", "document"])).toBe(308);
      // Embedded without a navigation.
      expect(await statusOf("", [site, "no-cors", "embed"])).toBe(403);
    }
  });

  it("keeps the budget of a loaded page, however many requests others send", async () => {
    const { page, url } = await serve();
    const client = await clientOf(url);
    const ask20 = (about: string): readonly Promise<Response>[] =>
      Array.from({ length: 20 }, () => page(new Request(`http://localhost/history?scheduler=0&name=a${about}`)));
    const asked = [ask20(""), ask20(`&client=${client}`)];
    const answered = async (asking: readonly Promise<Response>[]): Promise<number> =>
      (await Promise.all(asking)).filter(({ status }) => status === 404).length;
    expect(await Promise.all(asked.map(answered))).toEqual([20, 20]);
  });

  it("accepts only signed names of pages", () => {
    const client = newClient(TOKEN);
    expect(isClient(client, TOKEN)).toBe(true);
    const [name = "", signature = ""] = client.split(".");
    const forged = ["", name, `${name}.`, `.${signature}`, `x${client}`, `${client}x`, newClient(`${TOKEN}2`)];
    expect(forged.filter((each) => isClient(each, TOKEN))).toEqual([]);
  });

  it("reserves streams for loaded pages, one per page", async () => {
    const { page, url } = await serve();
    const open = async (client: string): Promise<Response> =>
      await page(new Request(`http://localhost/events?client=${client}`));
    const strangers = await Promise.all(Array.from({ length: 25 }, (_, at) => open(`forged.${at}`)));
    expect(strangers.filter(({ status }) => status === 200)).toHaveLength(20);
    const client = await clientOf(url);
    const first = await open(client);
    const second = await open(client);
    expect([first.status, second.status]).toEqual([200, 200]);
    // The first stream has ended, so reading it ends.
    expect(await first.text()).toContain("retry");
    await second.body?.cancel();
    const other = await open(await clientOf(url));
    expect(other.status).toBe(200);
    await Promise.all([other, ...strangers].map(async ({ body }) => await body?.cancel()));
  });

  it("sends a strict policy with every answer, and no script or style within the HTML", async () => {
    const { url } = await serve();
    for (const path of ["", "page.js", "details.js", "page.css", "state", "none.txt", "act"]) {
      const { headers } = await ask(url + path);
      expect(headers["content-security-policy"], path).toContain("default-src 'none'; script-src 'self';");
      expect(headers["content-security-policy"], path).toContain("frame-ancestors 'none'");
      expect(headers["content-security-policy"], path).not.toContain("unsafe");
      expect(headers["x-content-type-options"], path).toBe("nosniff");
      expect(headers["access-control-allow-origin"], path).toBeUndefined();
      expect(headers["cache-control"], path).toContain("no-store");
    }
    const { text } = await ask(url);
    expect(text).not.toMatch(/<script(?![^>]*src=)|<style|style=|\son\w+=|https?:/);
  });

  it("redirects an address without a slash, under any mount path", async () => {
    const { url } = await serve();
    const { status, headers } = await ask(`${url}admin/locks`);
    expect([status, headers.location]).toEqual([308, "./locks/"]);
    // Without the dot, such a name leads to another address.
    expect((await ask(`${url}https:evil%2ecom`)).headers.location).toBe("./https:evil%2ecom/");
    expect((await ask(`${url}admin/locks/`)).status).toBe(200);
    expect((await ask(`${url}admin/locks/page.css`)).headers["content-type"]).toContain("text/css");
    expect((await ask(`${url}favicon.ico`)).status).toBe(404);
  });

  it("refuses requests after its close, and ends live streams", async () => {
    const { page, url } = await serve();
    const live = fetch(`${url}events`).then((response) => response.text());
    await expect.poll(async () => (await ask(`${url}state`)).status).toBe(200);
    await page.close();
    await live;
    expect((await ask(url)).status).toBe(503);
  });

  it("does nothing once it is closed", async () => {
    const { page, url } = await serve({ actions: true, token: TOKEN });
    await page.close();
    const about = { do: "release-lock", resource: "page:closed" };
    expect((await act(url, about, { "x-console-token": TOKEN })).status).toBe(503);
  });

  it("opens no stream for HEAD", async () => {
    const { page } = await serve();
    const response = await page(new Request("http://localhost/events", { method: "HEAD" }));
    expect([response.status, response.body]).toEqual([200, null]);
  });

  it("bounds the searches per second", async () => {
    const { page } = await serve();
    const asking = Array.from({ length: 50 }, (_, at) => page(new Request(`http://localhost/state?findLock=${at}`)));
    const statuses = (await Promise.all(asking)).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([200, 429]));
  });
});

it("sends no password and no lock token", async () => {
  const secret = "tell-nobody-7351";
  const guarded = await startRedis({ args: ["--requirepass", secret] });
  onTestFinished(() => guarded.stop());
  const address = new URL(guarded.url);
  address.password = secret;
  const redlock = new Redlock(
    [address.href, `redis://operator:${secret}@127.0.0.1:1`, `redis://:wrong-${secret}@${address.host}`],
    {
      quarantine: false,
    },
  );
  onTestFinished(() => redlock.close());
  const queue = new ExclusiveQueue("secret", {
    connection: { url: `redis://operator:${secret}@127.0.0.1:1`, maxRetriesPerRequest: null },
  });
  queue.on("error", () => undefined);
  onTestFinished(() => queue.close());
  // Three names of one server, so that there are a lock and a quorum in addition to the failing part.
  const single = new Redlock(address.href, { quarantine: false });
  onTestFinished(() => single.close());
  const lock = await single.acquire("page:secret", { ttl: 30_000 });
  const { url } = await serve({ redlock, queues: [queue], actions: true });
  const { latest } = listen(url);
  await expect.poll(() => latest()?.queues[0]?.error).toEqual(expect.any(String));
  await expect.poll(() => lockIn(latest(), "page:secret")).toBeDefined();
  const client = new Redis(address.href);
  onTestFinished(() => client.disconnect());
  const stored = String(await client.get("page:secret"));
  expect(stored).toMatch(/^x[0-9a-f]{40}$/);
  const paths = [
    "",
    "page.js",
    "details.js",
    "page.css",
    "state",
    "state?queue=secret&key=1",
    "act?do=release-lock&resource=a",
  ];
  const answers = await Promise.all(
    paths.flatMap((path) => [
      ask(url + path),
      ask(url + path, { method: "POST", headers: { origin: new URL(url).origin } }),
    ]),
  );
  const texts = [JSON.stringify(latest()), ...answers.map(({ headers, text }) => JSON.stringify(headers) + text)];
  for (const text of texts) {
    expect(text).not.toContain(secret);
    expect(text).not.toContain(stored);
  }
  await lock.release();
});
