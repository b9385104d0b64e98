import { Redlock } from "@x/redlock-core";
import { systemRandom } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { ManualClock, startRedisNodes } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { ClientName, HolderNames } from "../src/rounds/client-name.ts";
import { clientOf, newToken, TOKEN_LENGTH } from "../src/rules/token.ts";

const HOUR_MS = 3_600_000;

describe("the name of a client", () => {
  function told(isKept: () => boolean): { readonly clock: ManualClock; readonly name: ClientName; count: number } {
    const clock = new ManualClock();
    const name = new ClientName(clock, systemRandom, async () => {
      result.count += 1;
      return isKept();
    });
    const result = { clock, name, count: 0 };
    return result;
  }

  it("costs no request per token: the nodes receive it once an hour, and soon again if one did not answer", async () => {
    let isKept = false;
    const client = told(() => isKept);
    const take = async (): Promise<number> => {
      for (let i = 0; i < 1_000; i += 1) client.name.newToken();
      await Promise.resolve();
      return client.count;
    };
    expect(await take()).toBe(1);
    isKept = true;
    await client.clock.advance(9_999);
    expect(await take()).toBe(1);
    await client.clock.advance(1);
    expect(await take()).toBe(2);
    await client.clock.advance(HOUR_MS - 1);
    expect(await take()).toBe(2);
    await client.clock.advance(1);
    expect(await take()).toBe(3);
  });

  it("is part of all tokens of the client, and the rest of a token is random", () => {
    const { name } = told(() => true);
    const tokens = Array.from({ length: 100 }, () => name.newToken());
    expect(new Set(tokens.map(clientOf)).size).toBe(1);
    expect(new Set(tokens.map((token) => token.slice(13))).size).toBe(100);
    expect(tokens.every((token) => token.length === TOKEN_LENGTH && /^xn[0-9a-f]{39}$/.test(token))).toBe(true);
    expect(clientOf(told(() => true).name.newToken())).not.toBe(clientOf(tokens[0] ?? ""));
  });

  it("does not shorten the tokens of a custom source of randomness", () => {
    expect(newToken({ token: () => "17", fraction: () => 0 }, "abcdefabcdef")).toBe("x17");
  });

  it("is requested once for all callers, none of whom waits for a hanging node", async () => {
    let count = 0;
    const node = (answer: () => Promise<unknown>): unknown => ({
      node: { name: "stub", state: "ready", eval: answer },
      watch: { heard: () => undefined, suspect: () => undefined },
      onScriptAnswered: () => undefined,
    });
    const known = node(() => {
      count += 1;
      return Promise.resolve([`name ${count}`]);
    });
    const hangs = node(() => new Promise(() => undefined));
    const batchers = [hangs, known] as never;
    const names = new HolderNames({ batchers, clock: new ManualClock(), options: { nodeTimeout: 500 } } as never);
    expect(await Promise.all([names.of("a"), names.of("a"), names.of("b")])).toEqual(["name 1", "name 1", "name 2"]);
    expect(await names.of("a")).toBe("name 1");
    // More names than the cache holds, so that "a" is forgotten.
    await Promise.all(Array.from({ length: 1_000 }, (_, i) => names.of(`other ${i}`)));
    expect(await names.of("a")).not.toBe("name 1");
  });

  it("is shown to callers that ask for the holder of a lock", async () => {
    const servers = await startRedisNodes(3);
    onTestFinished(async () => {
      await Promise.all(servers.map((server) => server.stop()));
    });
    const connected = (name?: string): Redlock => {
      const redlock = new Redlock(
        servers.map(({ url }) => url),
        { quarantine: false, name },
      );
      onTestFinished(() => redlock.close());
      return redlock;
    };
    const [named, nameless] = [connected("billing-api host-7 4711"), connected()];
    const lock = await named.acquire("a");
    await nameless.acquire("b");
    const { verdict, holder } = await nameless.inspect("a");
    expect({ verdict, holder }).toEqual({ verdict: "held", holder: "billing-api host-7 4711" });
    expect((await named.inspect("b")).holder).toBeUndefined();
    await lock.release();
    expect((await nameless.inspect("a")).holder).toBeUndefined();
    // It is enough that one node knows the name.
    await Promise.all(servers.slice(1).map((server) => server.call("FLUSHALL")));
    await named.acquire("c");
    const token = String(await servers[0]?.call("GET", "c"));
    const client = clientOf(token) ?? "";
    expect(await protocolOf(nameless).namesOf([client, "0123456789ab"])).toEqual(
      new Map([[client, "billing-api host-7 4711"]]),
    );
    expect(Number(await servers[0]?.call("PTTL", `{x}:client:${client}`))).toBeGreaterThan(0);
  });
});
