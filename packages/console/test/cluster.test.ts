/** The page and the command line on a real Redis Cluster of three masters. */
import { runConsole, type Terminal } from "@x/console";
import { createPage } from "@x/console/page";
import { Redlock } from "@x/redlock-core";
import { deferred } from "@x/redlock-core/kit";
import { type RedisCluster, startCluster } from "@x/test-support";
import { Queue } from "bullmq";
import { Cluster } from "ioredis";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { parseMasters } from "../src/page/rules/masters.ts";
import type { PageState } from "../src/page/state.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(async () => await cluster.stop());

function connected(name = ""): Redlock {
  const client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  client.on("error", () => undefined);
  const redlock = new Redlock(client, { name });
  onTestFinished(async () => {
    await redlock.close();
    client.disconnect();
  });
  return redlock;
}

interface Ran {
  readonly code: number;
  readonly text: string;
}

/** Runs a command until the command or its signal ends. Reports the text that the command has written so far. */
async function run(
  args: readonly string[],
  { signal = new AbortController().signal, tell = () => undefined }: RunOptions = {},
): Promise<Ran> {
  let text = "";
  const write = (written: string): void => {
    text += written;
    tell(text);
  };
  const terminal: Terminal = {
    isInteractive: false,
    env: { REDIS_URL: cluster.nodes[0]?.url },
    signal,
    write,
    writeError: write,
    confirm: () => Promise.resolve(false),
  };
  const code = await runConsole(args, terminal);
  return { code, text };
}

interface RunOptions {
  readonly signal?: AbortSignal;
  readonly tell?: (text: string) => void;
}

it("is inspected by the command line, which shows the holder of a lock", async () => {
  const redlock = connected("billing-api");
  const names = ["a", "b", "c", "d"];
  await Promise.all(names.map((name) => redlock.acquire(name, { ttl: 60_000 })));
  // No call waits until the nodes know the name of its client.
  await expect
    .poll(async () => (await run(["locks", "inspect", "a", "--cluster"])).text)
    .toContain("a: held by billing-api, for ");
  for (const name of names) {
    const { code, text } = await run(["locks", "inspect", name, "--cluster"]);
    expect(text).toContain(`${name}: held by billing-api, for `);
    expect(code).toBe(0);
  }
  const taken = await run(["locks", "release", "a", "--cluster", "--yes"]);
  expect(taken).toEqual({ code: 0, text: "a was taken away\n" });
  const lost = await run(["locks", "inspect", "a"]);
  expect(lost.text).toContain("A member of a Redis Cluster answered: add --cluster.");
  await Promise.all(names.map((name) => redlock.forceRelease(name)));
});

it("is served as a page, with the locks and queues of all masters", async () => {
  const redlock = connected();
  const client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  client.on("error", () => undefined);
  onTestFinished(() => client.disconnect());
  // A slot of each master.
  const tags = ["a", "b", "c"];
  const queues = tags.map((tag) => new Queue(`{${tag}}`, { connection: client }));
  await Promise.all(queues.map((queue) => queue.waitUntilReady()));
  const locks = await Promise.all(tags.map((tag) => redlock.acquire(tag, { ttl: 60_000 })));
  const ending = new AbortController();
  const told = deferred<string>();
  const serving = run(["serve", "--cluster", "--json"], { signal: ending.signal, tell: (text) => told.resolve(text) });
  // The command has only ended already if it failed.
  const first = await Promise.race([told.promise, serving.then(({ text }) => text)]);
  const { url } = JSON.parse(first) as { readonly url: string };
  const shown = async (): Promise<unknown> => {
    const state = (await (await fetch(`${url}state`)).json()) as PageState;
    const { nodes, locks: found } = state;
    return {
      cluster: nodes.value?.isCluster,
      answering: nodes.value?.answering,
      locks: found.value?.locks.map(({ resource }) => resource).sort(),
      queues: state.queues.map(({ name }) => name),
    };
  };
  await expect
    .poll(shown, { timeout: 20_000 })
    .toEqual({ cluster: true, answering: 3, locks: tags, queues: tags.map((tag) => `{${tag}}`) });
  ending.abort();
  expect(await serving).toMatchObject({ code: 0 });
  await expect(fetch(url)).rejects.toThrow("fetch failed");
  await Promise.all(locks.map((lock) => lock.release()));
  await Promise.all(queues.map((queue) => queue.close()));
});

it("shows the locks of all masters, and which master does not answer", async () => {
  const redlock = connected("billing-api");
  const page = createPage({ redlock, refresh: 200 });
  onTestFinished(() => page.close());
  // The page looks up the names of holders while a browser has the page open.
  const open = await page(new Request("http://localhost/events"));
  onTestFinished(() => open.body?.cancel());
  const stateOf = async (): Promise<PageState> => {
    const response = await page(new Request("http://localhost/state"));
    return (await response.json()) as PageState;
  };
  const names = Array.from({ length: 12 }, (_, at) => `account:${at}`);
  const locks = await Promise.all(names.map((name) => redlock.acquire(name, { ttl: 60_000 })));
  const shown = async (): Promise<ReadonlyMap<string, unknown>> => {
    const found = (await stateOf()).locks.value?.locks ?? [];
    return new Map(found.map(({ resource, state, owner }) => [resource, `${state} by ${owner}`]));
  };
  await expect.poll(shown, { timeout: 20_000 }).toEqual(new Map(names.map((name) => [name, "held by billing-api"])));
  const [one, other] = [connected(), connected()];
  const waiting = Promise.allSettled([one.acquire("account:3"), other.acquire("account:3"), one.acquire("account:7")]);
  const waited = async (): Promise<readonly unknown[]> => {
    const found = (await stateOf()).locks.value?.locks ?? [];
    return found.filter(({ waiters }) => waiters > 0).map(({ resource, waiters }) => [resource, waiters]);
  };
  await expect.poll(waited, { timeout: 20_000 }).toEqual([
    ["account:3", 2],
    ["account:7", 1],
  ]);
  const { nodes } = await stateOf();
  expect(nodes.value).toMatchObject({ isCluster: true, answering: 3, quorum: 3 });
  expect(nodes.value?.nodes.map(({ node }) => node)).toEqual(cluster.nodes.map(({ host, port }) => `${host}:${port}`));
  await Promise.all([one.close(), other.close()]);
  await waiting;
  await Promise.all(locks.map((lock) => lock.release()));
  await expect.poll(shown, { timeout: 20_000 }).toEqual(new Map());

  await cluster.nodes[2]?.kill();
  await expect
    .poll(async () => (await stateOf()).locks.error, { timeout: 20_000 })
    .toBe("2 of 3 masters answer, each has locks of its own");
  await cluster.nodes[2]?.start();
  await expect.poll(async () => (await stateOf()).locks.error, { timeout: 30_000 }).toBeUndefined();
});

it("keeps the number of a master as long as the master exists", () => {
  const told = (...masters: readonly (readonly [string, number, number])[]): unknown =>
    masters.map(([id, first, last]) => [first, last, ["host", 7_000 + first, id], ["host", 1, "replica"]]);
  const first = parseMasters(told(["a", 0, 9], ["b", 10, 19], ["a", 20, 29]), []);
  expect(first).toEqual([
    {
      id: "a",
      name: "host:7000",
      at: 0,
      slots: [
        [0, 9],
        [20, 29],
      ],
    },
    { id: "b", name: "host:7010", at: 1, slots: [[10, 19]] },
  ]);
  const second = parseMasters(told(["c", 0, 9], ["b", 10, 29]), first);
  expect(second.map(({ id, at }) => [id, at])).toEqual([
    ["b", 1],
    ["c", 2],
  ]);
  expect(() => parseMasters("OK", [])).toThrow(TypeError);
});
