import { Redlock } from "@x/redlock-core";
import { ExclusiveWorker, type ExclusiveWorkerOptions, UnsupportedBullMQError } from "@x/workers";
import type { ConnectionOptions } from "bullmq";
import { describe, expect, it } from "vitest";
import {
  type BullClient,
  checkScripts,
  installedScripts,
  refuseBroken,
  runScript,
  targetOf,
} from "../src/bullmq/bullmq.ts";
import { lockNodeOf } from "../src/bullmq/rules/connection.ts";
import { fingerprintOf, nearestSet, SCRIPT_SETS, type ScriptTexts } from "../src/bullmq/rules/script-sets.ts";
import { bullOptions, readOptions, resolveOptions } from "../src/options.ts";

const connection = { host: "127.0.0.1", port: 1 };
const resolve = (options: object): ReturnType<typeof resolveOptions> =>
  resolveOptions("q", readOptions({ connection, key: "k", ...options }));

describe("options", () => {
  it("recover the keys of a killed worker within 20 s by default", () => {
    const { lockDuration, stalledInterval, ttl, warnings } = resolve({});
    expect(lockDuration + stalledInterval).toBeLessThanOrEqual(20_000);
    expect(ttl).toBe(lockDuration);
    expect(warnings).toEqual([]);
  });

  it("are passed on to BullMQ without the options of this package, and without starting the worker", () => {
    const options = {
      connection,
      key: "k",
      concurrency: 7,
      timeout: 5,
      onFailure: "block",
    } as const;
    expect(bullOptions(options, resolveOptions("q", options))).toEqual({
      connection: { ...connection, socketTimeout: 15_000 },
      concurrency: 7,
      lockDuration: 10_000,
      stalledInterval: 5_000,
      autorun: false,
    });
  });

  it("leave a socketTimeout and a client of the user unchanged", () => {
    const client = { duplicate: () => client } as unknown as ConnectionOptions;
    for (const given of [{ ...connection, socketTimeout: 3_000 }, client]) {
      const options = { connection: given, key: "k" };
      expect(bullOptions(options, resolveOptions("q", options)).connection).toStrictEqual(given);
    }
  });

  it.each([
    [{ key: undefined }, TypeError, 'key must be a path of fields such as "account.id" or a function, got undefined'],
    [{ key: "a..b" }, RangeError, 'key must be a path of fields such as "account.id" or a function, got "a..b"'],
    [{ onFailure: "stop" }, RangeError, 'onFailure must be "skip", "block" or "halt", got "stop"'],
    [
      { onFailure: "block", perKey: { concurrency: 2 } },
      RangeError,
      'perKey.concurrency must be 1 with onFailure "block", got 2: other jobs of the key would pass',
    ],
    [{ perKey: { concurrency: 101 } }, RangeError, "perKey.concurrency must be an integer from 1 to 100, got 101"],
    [{ perKey: { concurrency: "3" } }, TypeError, 'perKey.concurrency must be an integer from 1 to 100, got "3"'],
    [{ ttl: 20_000 }, RangeError, "ttl must be <= lockDuration (10000), got 20000: a killed worker's key"],
    [{ ttl: 10 }, RangeError, "ttl must be an integer from 50"],
    [{ ttl: "1" }, TypeError, 'ttl must be an integer from 50 to 86400000 (ms), got "1"'],
    [{ timeout: -1 }, RangeError, "timeout must be an integer from 0"],
    [{ lockDuration: 1.5 }, RangeError, "lockDuration must be an integer"],
    [{ lockRenewTime: 9_000 }, RangeError, "lockRenewTime must be <= lockDuration / 2 (5000), got 9000"],
    [{ recheckInterval: 5 }, RangeError, "recheckInterval must be an integer from 100"],
    [
      { resource: 7 },
      TypeError,
      "resource must be a string of at most 512 bytes without control characters, or a function, got 7",
    ],
    [{ resource: "a\n" }, RangeError, "resource must be a string of at most 512 bytes without control characters"],
    [{ withoutKey: "skip" }, RangeError, 'withoutKey must be "pass" or "fail", got "skip"'],
    [{ onFailiure: "block" }, TypeError, 'unknown option "onFailiure": did you mean "onFailure"?'],
    [{ TTL: 500 }, TypeError, 'unknown option "TTL": did you mean "ttl"?'],
    [{ tiemout: 500 }, TypeError, 'unknown option "tiemout": did you mean "timeout"?'],
    [
      { whenBusy: "newest" },
      RangeError,
      'whenBusy must be "queue", "latest", "interrupt", "merge" or "drop", got "newest"',
    ],
    [
      { whenBusy: "interrupt", onFailure: "skip" },
      RangeError,
      'onFailure must be "block" or "halt" where whenBusy is "interrupt", got "skip"',
    ],
    [
      { whenBusy: "latest", perKey: { maxWaiting: { max: 3 } } },
      RangeError,
      'perKey.maxWaiting must be left out where whenBusy is "latest", got 3',
    ],
    [
      { whenBusy: "merge", perKey: { maxWaiting: { max: 3, drop: "oldest" } } },
      RangeError,
      'perKey.maxWaiting.drop must be "newest" where whenBusy is "merge", got "oldest"',
    ],
    [{ perKey: { batch: {} } }, RangeError, 'whenBusy must be "merge" where perKey.batch is given, got "queue"'],
    [
      { whenBusy: "merge", perKey: { batch: { size: 0 } } },
      RangeError,
      "perKey.batch.size must be an integer from 1 to 1000",
    ],
    [{ perKey: { maxWaiting: { max: 0 } } }, RangeError, "perKey.maxWaiting.max must be an integer from 1 to 1000000"],
    [{ perKey: 5 }, TypeError, "perKey must be an object, got 5"],
    [{ perKey: { rates: {} } }, TypeError, 'unknown option "perKey.rates": did you mean "perKey.rate"?'],
    [{ perKey: { rate: { max: 1 } } }, TypeError, "perKey.rate.duration must be an integer from 1 to 86400000 (ms)"],
    [{ perKey: { rate: { max: 0, duration: 1 } } }, RangeError, "perKey.rate.max must be an integer from 1 to 10000"],
    [{ redlock: {} }, TypeError, "redlock must be a Redlock (of @x/redlock-core), got an object"],
  ])("refuse %o", (options, type, message) => {
    expect(() => resolve(options)).toThrow(type);
    expect(() => resolve(options)).toThrow(message);
  });

  it("refuse a lease that the passed Redlock does not allow", async () => {
    await using redlock = new Redlock(connection, { ttl: 1_000, maxTtl: 2_000 });
    expect(() => resolve({ redlock })).toThrow("ttl must be <= maxTtl of redlock (2000), got 10000");
  });

  it("refuse to renew a job only after its lease minus the drift of the passed Redlock", async () => {
    await using redlock = new Redlock(connection, { driftFactor: 0.5 });
    expect(() => resolve({ redlock })).toThrow(RangeError);
    expect(() => resolve({ redlock })).toThrow(
      "lockRenewTime must be < lockDuration − drift of redlock (4998), got 5000",
    );
    expect(() => resolve({ redlock, lockRenewTime: 4_998 })).toThrow("(4998), got 4998: the job would be lost");
    expect(resolve({ redlock, lockRenewTime: 2_000 })).toMatchObject({ lockDuration: 10_000 });
  });

  it("may be passed as undefined, as exactOptionalPropertyTypes allows", () => {
    const names = ["resource", "withoutKey", "redlock", "onFailure", "ttl", "timeout", "recheckInterval"] as const;
    const none: Pick<ExclusiveWorkerOptions, (typeof names)[number]> = Object.fromEntries(
      names.map((name) => [name, undefined]),
    );
    expect(resolve(none)).toMatchObject({
      ...resolve({}),
      keyOf: expect.any(Function),
      resourceOf: expect.any(Function),
    });
  });

  it("refuse a connection that BullMQ or the locks cannot use", () => {
    const make = (connection: unknown) => () => new ExclusiveWorker("q", null, { connection, key: "k" } as never);
    expect(make(new URL("redis://h"))).toThrow("connection must be an object such as");
    expect(make({ url: new URL("redis://h") })).toThrow("connection.url must be a string, got an instance of URL");
    expect(make("redis://localhost")).toThrow(
      'connection must be an object such as { url: "redis://…" }, got a string',
    );
    expect(make({ ...connection, keyPrefix: "x:" })).toThrow("connection must have no keyPrefix");
    expect(() => new ExclusiveWorker("q", null, undefined as never)).toThrow("options must be an object");
  });

  it("use the separate options, or this machine, if a URL names no server", () => {
    expect(lockNodeOf({ url: "redis:///2" })).toEqual({ host: "127.0.0.1", port: 6379, db: 2 });
    expect(lockNodeOf({ url: "redis:///2", host: "h", port: 1 })).toEqual({ host: "h", port: 1, db: 2 });
    expect(lockNodeOf({ url: "redis://:s%40@[::1]" })).toEqual({ host: "::1", password: "s@" });
  });

  it("keep the TLS options that are passed next to a URL", () => {
    expect(lockNodeOf({ url: "rediss://h:1", tls: { ca: "c" } })).toMatchObject({ host: "h", tls: { ca: "c" } });
    expect(lockNodeOf({ url: "rediss://h:1" })).toMatchObject({ tls: {} });
    expect(lockNodeOf({ url: "redis://h:1" })).not.toHaveProperty("tls");
  });

  it.each([
    [{ key: "data.accountId" }, "KEY_PATH"],
    [{ key: "job.data.accountId" }, "KEY_PATH"],
    [{ skipStalledCheck: true }, "NO_STALLED_CHECK"],
    [{ skipLockRenewal: true }, "NO_LOCK_RENEWAL"],
    [{ maxStalledCount: 0 }, "NO_SECOND_RUN"],
  ])("warn, with the reason, of %o", (options, code) => {
    const [option] = Object.keys(options);
    expect(resolve(options).warnings).toEqual([
      { code, severity: "warning", subjects: [option], message: expect.stringContaining(`${option} is `) },
    ]);
  });

  it("refuse a resource name that is not a string when the name is computed", () => {
    expect(() => resolve({ resource: () => 7 }).resourceOf("a")).toThrow("resource must return a string, got 7");
    expect(() => resolve({ resource: () => "" }).resourceOf("a")).toThrow("is empty");
  });

  it("leave no connection behind when the constructor throws", () => {
    expect(() => new ExclusiveWorker("q:bad", null, { connection, key: "k" })).toThrow("Queue name cannot contain :");
    expect(() => new ExclusiveWorker("q", null, { key: "k" } as never)).toThrow("connection must be an object");
    const unusable = { duplicate: () => ({}), isValkey: true };
    expect(() => new ExclusiveWorker("q", null, { key: "k", connection: unusable })).toThrow("give the option redlock");
  });
});

describe("scripts over ioredis' automatic pipelines", () => {
  const script = { name: "lane:look", lua: "return 1", numberOfKeys: 1 };

  function pipelined(fail: (name: string) => boolean): { client: BullClient; sent: string[] } {
    const sent: string[] = [];
    const client = {
      options: { enableAutoPipelining: true },
      defineCommand: (name: string) => void sent.push(`define ${name}`),
      runCommand: async (name: string, args: readonly unknown[]) => {
        sent.push(`${name} ${String(args[0])}`);
        if (fail(name)) throw new TypeError("pipeline[functionName] is not a function");
        return await Promise.resolve(name);
      },
    };
    return { client, sent };
  }

  it("wait once for the pending pipeline on each key", async () => {
    const { client, sent } = pipelined(() => false);
    const run = async (key: string): Promise<unknown> => await runScript(client, script, [key]);
    expect(await Promise.all([run("a"), run("a"), run("b")])).toEqual(["lane:look", "lane:look", "lane:look"]);
    await run("a");
    expect(sent).toEqual([
      "define lane:look",
      "del a:barrier",
      "del b:barrier",
      ...["a", "a", "b", "a"].map((key) => `lane:look ${key}`),
    ]);
  });

  it("fail in a later turn, so that a caller that retries immediately does not keep the process busy", async () => {
    const { client, sent } = pipelined(() => true);
    let isNextTurn = false;
    setImmediate(() => (isNextTurn = true));
    await expect(runScript(client, script, ["a"])).rejects.toThrow("is not a function");
    expect(isNextTurn).toBe(true);
    await runScript(client, script, ["a"]).catch(() => {});
    expect(sent.filter((command) => command.startsWith("del"))).toHaveLength(2);
  });
});

describe("a script that the server has dropped from its cache", () => {
  const script = { name: "lane:look", lua: "return 1", numberOfKeys: 1 };

  function forgetful(enableAutoPipelining: boolean, times: number): { client: BullClient; sends: () => number } {
    let sends = 0;
    const client = {
      options: { enableAutoPipelining },
      defineCommand: () => {},
      runCommand: async (name: string) => {
        if (name === script.name) sends += 1;
        if (name === script.name && sends <= times) throw new Error("NOSCRIPT No matching script. Please use EVAL.");
        return await Promise.resolve("ran");
      },
    };
    return { client, sends: () => sends };
  }

  it.each([
    ["alone", false],
    ["in ioredis' automatic pipelines", true],
  ])("is sent again, however often the server drops it: %s", async (_how, enableAutoPipelining) => {
    const { client, sends } = forgetful(enableAutoPipelining, 5);
    await expect(runScript(client, script, ["a"])).resolves.toBe("ran");
    expect(sends()).toBe(6);
  });

  it("is not sent forever", async () => {
    const { client, sends } = forgetful(false, Number.POSITIVE_INFINITY);
    await expect(runScript(client, script, ["a"])).rejects.toThrow("NOSCRIPT");
    expect(sends()).toBe(20);
  });
});

describe("the contract with BullMQ", () => {
  const scripts = installedScripts();

  it("holds for the installed version", () => {
    expect(Object.keys(checkScripts(scripts).scripts)).toContain("moveToActive");
  });

  const changed = { ...scripts, moveToFinished: { lua: `${scripts["moveToFinished"]?.lua} `, numberOfKeys: 14 } };
  const refusal = (accepted?: string): UnsupportedBullMQError => {
    try {
      checkScripts(changed, accepted);
    } catch (error) {
      return error as UnsupportedBullMQError;
    }
    throw new Error("the changed script was accepted");
  };

  it("refuses an unknown script and a missing script by name", () => {
    expect(refusal()).toBeInstanceOf(UnsupportedBullMQError);
    expect(refusal().message).toMatch(/script moveToFinished has the unknown text [0-9a-f]{16}\)/);
    const { promote: _promote, ...others } = scripts;
    expect(() => checkScripts(others)).toThrow("script promote is missing");
  });

  it("accepts exactly the texts whose fingerprint is given", () => {
    const { fingerprint, ...others } = refusal().texts ?? {};
    expect(others).toEqual({ scripts: ["moveToFinished"], nearest: SCRIPT_SETS.at(-1)?.to });
    expect(fingerprint).toMatch(/^[0-9a-f]{16}$/);
    expect(checkScripts(changed, fingerprint)).toEqual({ scripts: changed, untested: ["moveToFinished"] });
    expect(checkScripts(scripts, fingerprint).untested).toEqual([]);
    const other = "0123456789abcdef";
    expect(refusal(other).message).toContain(`acceptScripts is ${other} and not ${fingerprint}`);
  });

  it("refuses a mixture of texts of two known releases", () => {
    const [oldest] = SCRIPT_SETS;
    const newest = SCRIPT_SETS.at(-1);
    expect(nearestSet(oldest?.texts as ScriptTexts)).toEqual({ set: oldest, differing: [] });
    const mixed = { ...newest?.texts, promote: oldest?.texts.promote } as ScriptTexts;
    expect(nearestSet(mixed)).toEqual({ set: newest, differing: ["promote"] });
    expect(new Set(SCRIPT_SETS.map(({ texts }) => fingerprintOf(texts))).size).toBe(SCRIPT_SETS.length);
  });

  it.each([
    ["6.0.6", false],
    ["6.0.7", true],
    ["6.0.11", true],
    ["6.2.2", true],
    ["6.3.2", true],
    ["6.3.3", false],
    ["6.3.16", false],
    ["16.3.1", false],
  ])("refuses the releases that take no job after an outage of Redis: %s, %s", (packageVersion, isRefused) => {
    const refused = (): void => refuseBroken({ backend: { connection: { packageVersion } } });
    if (isRefused) expect(refused).toThrow(`BullMQ ${packageVersion} takes no job after Redis was away`);
    else expect(refused).not.toThrow();
    expect(() => refuseBroken({ connection: {} })).not.toThrow();
  });

  it("refuses another backend, and jobs that would bypass the worker's backend", () => {
    const backend = { queue: { toKey: () => "" }, execCommand: () => undefined, extendLock: () => undefined };
    expect(() => targetOf({ backend: {} }, { backend: {} })).toThrow("not BullMQ's Redis backend");
    expect(() => targetOf({ backend }, { backend: { ...backend } })).toThrow("jobs do not use the worker's backend");
    expect(targetOf({ backend }, { backend })).toBe(backend);
    expect(targetOf({ scripts: backend }, { scripts: backend })).toBe(backend);
    const job = { scripts: { ...backend } };
    expect(targetOf({ scripts: backend }, job)).toBe(backend);
    expect(job.scripts).toBe(backend);
  });
});
