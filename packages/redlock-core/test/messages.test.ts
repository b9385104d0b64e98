/** Any client that may publish may send any text to a process's channel. */
import { lineOf, memberOf, putInLine, type RedisServer, waitersOf } from "@x/test-support";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { resolveOptions } from "../src/api/options.ts";
import { type Redlock, systemClock } from "../src/index.ts";
import { systemRandom } from "../src/kit/random.ts";
import { Engine } from "../src/lock/engine.ts";
import { Hints } from "../src/waiting/hints.ts";
import { clients } from "./support/clients.ts";
import { openRedlock, requestsOf, startNodes } from "./support/nodes.ts";
import { StubNode } from "./support/stub-node.ts";

const far = { ttl: 60_000, timeout: 60_000 } as const;

interface Scene {
  readonly server: RedisServer;
  readonly held: AsyncDisposable;
  /** The waits of the first and the second waiter, which are in different processes. */
  readonly waits: readonly Promise<AsyncDisposable>[];
  readonly members: readonly string[];
  readonly channels: readonly string[];
}

async function twoWaiting(client: string): Promise<Scene> {
  const [server] = (await startNodes(1)) as [RedisServer];
  const held = await openRedlock([server]).acquire("r", far);
  const waits: Promise<AsyncDisposable>[] = [];
  for (const count of [1, 2]) {
    const redlock: Redlock = openRedlock([clients[client]?.(`redis://127.0.0.1:${server.port}`) ?? ""]);
    waits.push(redlock.acquire("r", far));
    await expect.poll(() => waitersOf(server, "r")).toBe(count);
  }
  const members = await membersOf(server);
  return { server, held, waits, members, channels: members.map((member) => member.slice(17).split("#")[0] ?? "") };
}

async function membersOf(server: RedisServer): Promise<readonly string[]> {
  return await lineOf(server, "r");
}

const keys = ["r", "{r}", "{r}:fence", "{a}:fence", "{a}", "{x}:node", "{r}:note", "", "}", "a}b", "\u0000", "🔒"];

function messages({ members, channels }: Scene): fc.Arbitrary<string> {
  const what = fc.constantFrom(
    "turn",
    "next",
    "next1",
    "next-1",
    "next0",
    "nextNaN",
    "next1e9",
    "nextInfinity",
    "",
    "x",
  );
  const names = [
    "nobody",
    "__proto__",
    "constructor",
    "",
    ...channels.map((channel) => memberOf(1, `${channel}#999`)),
    ...members,
  ];
  const key = fc.oneof(fc.constantFrom(...keys), fc.string({ unit: "binary" }));
  return fc.oneof(
    fc.string({ unit: "binary" }),
    fc.tuple(what, fc.constantFrom(...names), key).map((words) => words.join(" ")),
    fc.tuple(what, fc.constantFrom(...names)).map((words) => words.join(" ")),
  );
}

it.each(Object.keys(clients))("no message throws, nor removes a waiter from a line (%s)", async (client) => {
  const scene = await twoWaiting(client);
  const { server, held, waits, members, channels } = scene;
  await fc.assert(
    fc.asyncProperty(fc.array(messages(scene), { minLength: 20, maxLength: 40 }), async (sent) => {
      const published = sent.flatMap((message) => channels.map((channel) => server.call("PUBLISH", channel, message)));
      for (const receivers of await Promise.all(published)) expect(receivers).toBe(1);
      expect(await membersOf(server)).toEqual(members);
    }),
    { numRuns: 30, endOnFailure: true },
  );
  await held[Symbol.asyncDispose]();
  for (const wait of waits) await (await wait)[Symbol.asyncDispose]();
});

it("a turn message for another process's waiter costs no request", async () => {
  const { server, held, waits, members, channels } = await twoWaiting("ioredis");
  const before = await requestsOf(server);
  await server.call("PUBLISH", channels[0] ?? "", `turn ${members[1]} r`);
  await server.call("PUBLISH", channels[0] ?? "", `turn ${members[0]} r`);
  // The process acts on the first message before it receives the second.
  await expect.poll(async () => await requestsOf(server)).toBeGreaterThan(before);
  expect(await requestsOf(server)).toBe(before + 1);
  expect(await membersOf(server)).toEqual(members);
  await held[Symbol.asyncDispose]();
  for (const wait of waits) await (await wait)[Symbol.asyncDispose]();
});

it("a turn message for a missing waiter returns the turn of a key that is waited for, and of no other key", async () => {
  const { server, held, waits, channels } = await twoWaiting("ioredis");
  const gone = memberOf(1, `${channels[0]}#999`);
  await server.call("MSET", "r2", `reserved:${gone}`, "{r}", `reserved:${gone}`);
  await putInLine(server, "r", [gone]);
  for (const key of ["r2", "{r}", "r"]) await server.call("PUBLISH", channels[0] ?? "", `turn ${gone} ${key}`);
  await expect.poll(() => membersOf(server)).not.toContain(gone);
  expect(await server.call("EXISTS", "r2", "{r}")).toBe(2);
  await held[Symbol.asyncDispose]();
  for (const wait of waits) await (await wait)[Symbol.asyncDispose]();
});

it("a place in line is a number from 1 to 9", async () => {
  let publish: (message: string) => void = () => undefined;
  const node = Object.assign(new StubNode(), {
    subscribe: (_channel: string, listener: (message: string) => void): Promise<() => void> => {
      publish = listener;
      return Promise.resolve(() => undefined);
    },
  });
  const { options } = resolveOptions({}, { count: 1, isCluster: false });
  const engine = new Engine([node], options, systemClock, systemRandom);
  const hints = new Hints(engine);
  await hints.open();
  const places: number[] = [];
  const member = hints.nextMember(1);
  const unexpected = (): void => expect.unreachable();
  hints.listen(member, engine.targets.of(["r"]), {
    onTurn: unexpected,
    onGap: unexpected,
    onNext: (place) => places.push(place),
  });
  for (const place of ["", "0", "-1", "NaN", "Infinity", "1e9", "99", "2"]) publish(`next${place} ${member} r`);
  hints.close();
  expect(places).toEqual([2]);
});
