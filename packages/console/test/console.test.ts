import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { runConsole, type Terminal } from "@x/console";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type TickRecord } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { type RedisServer, startRedis, startRedisNodes } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { PartitionedQueue, PartitionedWorker, partitionOf } from "@x/workers/partitions";
import { Queue, UnrecoverableError, Worker } from "bullmq";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";

interface Ran {
  readonly code: number;
  readonly text: string;
  readonly errors: string;
}

const URL_WITH_SECRET = "redis://operator:tell-nobody@127.0.0.1:1";

let servers: readonly RedisServer[];
beforeAll(async () => {
  servers = await startRedisNodes(3);
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

const urls = (): readonly string[] => servers.map((server) => server.url);

interface Options {
  /** The answer of the person at the terminal to every question. */
  readonly answer?: boolean;
  readonly nodes?: readonly string[];
}

interface Running {
  /** The text that the command has written. */
  readonly text: () => string;
  readonly errors: () => string;
  readonly done: Promise<Ran>;
  /** Ends the watching command. */
  readonly end: () => Promise<Ran>;
}

function start(args: readonly string[], { answer, nodes = urls() }: Options = {}): Running {
  const watching = new AbortController();
  let [text, errors] = ["", ""];
  const terminal: Terminal = {
    isInteractive: answer !== undefined,
    env: { REDIS_URL: nodes.join(",") },
    signal: watching.signal,
    write: (written) => void (text += written),
    writeError: (written) => void (errors += written),
    confirm: () => Promise.resolve(answer ?? false),
  };
  const done = runConsole(args, terminal).then((code) => ({ code, text, errors }));
  const end = (): Promise<Ran> => {
    watching.abort();
    return done;
  };
  return { text: () => text, errors: () => errors, done, end };
}

const run = (args: readonly string[], options?: Options): Promise<Ran> => start(args, options).done;

function connected(): Redlock {
  const redlock = new Redlock([...urls()], { quarantine: false });
  onTestFinished(() => redlock.close());
  return redlock;
}

it("has every command that its skill names", async () => {
  const skill = readFileSync(new URL("../SKILL.md", import.meta.url), "utf8");
  const called = [...skill.matchAll(/npx @x\/console ([a-z]+(?: [a-z]+)?)/g)].map(([, command = ""]) => command);
  const named = [...skill.matchAll(/`((?:locks|leader|keys|schedules) [a-z]+)`/g)].map(([, command = ""]) => command);
  const commands = new Set([...called, ...named]);
  expect(commands.size).toBeGreaterThan(10);
  for (const command of commands) {
    const { code, text } = await run([...command.split(" "), "--help"]);
    expect({ command, code, usage: text.split("\n")[0] }).toEqual({
      command,
      code: 0,
      usage: expect.stringContaining(`Usage: x-console ${command} `),
    });
  }
});

describe("check", () => {
  it("prints the findings, and is not good with a finding", async () => {
    const { code, text } = await run(["check"]);
    expect(text).toContain("QUARANTINED");
    expect(code).toBe(1);
  });

  it("is good without a problem", async () => {
    const [server] = await startRedisNodes(1, { args: ["--appendonly", "yes"] });
    onTestFinished(() => server?.stop());
    const { code, text } = await run(["check"], { nodes: [server?.url ?? ""] });
    expect(text).toBe("Nothing is wrong.\n");
    expect(code).toBe(0);
  });

  it("prints the library's findings in JSON", async () => {
    const { text } = await run(["check", "--no-quarantine", "--json"]);
    const codes = (JSON.parse(text) as { code: string }[]).map(({ code }) => code);
    const told = (await connected().check()).map(({ code }) => code);
    expect(codes).toEqual(told);
    expect(codes).toContain("NO_PERSISTENCE");
  });
});

describe("locks", () => {
  it("shows a held lock, its remaining time and its fencing token", async () => {
    const lock = await connected().acquire("console:held", { ttl: 30_000 });
    const { code, text } = await run(["locks", "inspect", "console:held"]);
    expect(text).toMatch(/console:held: held, for (2\d|30)\.\d s/);
    expect(text).toContain(String(lock.fencingToken));
    expect(code).toBe(0);
  });

  it("releases a lock by force with --yes, so that its holder loses the lock", async () => {
    const lock = await connected().acquire("console:taken", { ttl: 30_000 });
    expect(await run(["locks", "release", "console:taken", "--yes"])).toMatchObject({ code: 0 });
    await expect(lock.extend()).rejects.toThrow("console:taken");
    expect(await run(["locks", "release", "console:taken", "--yes"])).toMatchObject({ code: 1 });
  });

  it("shows foreign text from Redis without letting it control the terminal", async () => {
    const evil = "\u001b]0;title\u0007\u009b2J\u202e\nconsole:evil: free";
    const shown = String.raw`\u001b]0;title\u0007\u009b2J\u202e`;
    const redlock = new Redlock([...urls()], { quarantine: false, name: evil });
    onTestFinished(() => redlock.close());
    await redlock.acquire("console:evil", { ttl: 30_000 });
    const { text } = await run(["locks", "inspect", "console:evil"]);
    expect(text).toContain(String.raw`console:evil: held by ${shown}\nconsole:evil: free`);
    const json = await run(["locks", "inspect", "console:evil", "--json"]);
    expect(JSON.parse(json.text)).toMatchObject({ holder: expect.stringContaining(evil) as string });
    const failed = await run(["locks", "release", `console:${evil}`]);
    expect(failed.code).toBe(2);
    const table = await run(["schedules", "history", evil, evil]);
    for (const printed of [text, json.text, failed.errors, table.text + table.errors])
      expect(printed.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Bidi_Control}]/u);
  });

  it("releases nothing without a yes", async () => {
    const lock = await connected().acquire("console:kept", { ttl: 30_000 });
    const unasked = await run(["locks", "release", "console:kept"]);
    expect(unasked).toMatchObject({ code: 2 });
    expect(unasked.errors).toContain("--yes");
    expect(await run(["locks", "release", "console:kept"], { answer: false })).toMatchObject({ code: 1 });
    await lock.extend();
    expect(await run(["locks", "release", "console:kept"], { answer: true })).toMatchObject({ code: 0 });
  });

  it("repeats the look until the command is ended", async () => {
    const watching = start(["locks", "watch", "console:watched", "--watch", "0.05", "--json"]);
    const verdicts = (): string[] =>
      watching
        .text()
        .trim()
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => (JSON.parse(line) as { verdict: string }).verdict);
    await expect.poll(verdicts).toContain("free");
    const held = await connected().acquire("console:watched");
    await expect.poll(verdicts).toContain("held");
    await held.release();
    await expect.poll(() => verdicts().at(-1)).toBe("free");
    expect(await watching.end()).toMatchObject({ code: 0 });
  });
});

describe("leader", () => {
  it("shows the leader, and asks the leader to resign", async () => {
    expect(await run(["leader", "status", "console"])).toMatchObject({ code: 1 });
    const election = new LeaderElection(connected(), { name: "console", id: "host-a", value: "10.0.0.1" });
    onTestFinished(() => election.stop({ drainTimeout: 0 }));
    const term = await election.campaign();
    const { code, text } = await run(["leader", "status", "console"]);
    expect(text).toContain("console: host-a leads");
    expect(text).toContain(String(term.fencingToken));
    expect(text).toContain("10.0.0.1");
    expect(code).toBe(0);
    const asked = new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
    expect(await run(["leader", "resign", "console", "--yes"])).toMatchObject({ code: 0 });
    await asked;
  });

  it("prints each change of the leader", async () => {
    const election = new LeaderElection(connected(), { name: "changing", id: "host-b" });
    onTestFinished(() => election.stop({ drainTimeout: 0 }));
    const watching = start(["leader", "watch", "changing"]);
    await expect.poll(watching.text).toContain("changing: nobody leads");
    const term = await election.campaign();
    await expect.poll(watching.text, { timeout: 20_000 }).toContain("changing: host-b leads");
    await term.resign();
    await expect.poll(watching.text, { timeout: 20_000 }).toMatch(/host-b leads[^]*nobody leads/);
    expect(await watching.end()).toMatchObject({ code: 0 });
  });
});

it("names the leader whose lock is inspected, long after its election", async () => {
  const election = new LeaderElection(connected(), { name: "inspected", id: "host-7" });
  onTestFinished(() => election.stop({ drainTimeout: 0 }));
  const term = await election.campaign();
  // The note of the grant ends with the first lease.
  await Promise.all(servers.map(async (server) => await server.call("DEL", "{leader:inspected}:note")));
  const { text } = await run(["locks", "inspect", "leader:inspected"]);
  expect(text).toMatch(/^leader:inspected: held by host-7, for /);
  const json = await run(["locks", "inspect", "leader:inspected", "--json"]);
  expect(JSON.parse(json.text)).toMatchObject({ verdict: "held", holder: "host-7" });
  await term.resign();
  expect((await run(["locks", "inspect", "leader:inspected"])).text).toContain("leader:inspected: free");
});

describe("schedules", () => {
  const YEAR_MS = 365 * 86_400_000;

  it("are listed, paused, resumed and triggered, with their history", async () => {
    const election = new LeaderElection(connected(), { name: "cron", id: "host-c" });
    const scheduler = new LeaderScheduler({ election, keyPrefix: "nightly" });
    onTestFinished(() => scheduler.stop({ drainTimeout: 0 }));
    let fails = false;
    scheduler.every("bill", YEAR_MS, () => {
      if (fails) throw new Error("the bank is closed");
    });
    const at = ["--scheduler", "nightly"];
    const empty = await run(["schedules", "list", "cron", ...at]);
    expect(empty).toMatchObject({ code: 1, text: "cron: no schedule is known\n" });
    scheduler.start();
    await expect.poll(() => run(["schedules", "list", "cron", ...at])).toMatchObject({ code: 0 });
    const before = await run(["schedules", "list", "cron", ...at]);
    expect(before.text).toContain("cron: host-c runs the ticks");
    expect(before.text).toMatch(/bill.*never/);

    const history = async (): Promise<readonly string[]> => {
      const { text } = await run(["schedules", "history", "cron", "bill", ...at, "--json"]);
      return (JSON.parse(text) as TickRecord[]).map(({ outcome }) => outcome);
    };
    expect(await run(["schedules", "trigger", "cron", "bill", ...at, "--yes"])).toMatchObject({ code: 0 });
    await expect.poll(history).toEqual(["run"]);
    fails = true;
    expect(await run(["schedules", "trigger", "cron", "bill", ...at, "--yes"])).toMatchObject({ code: 0 });
    await expect.poll(history).toEqual(["failed", "run"]);
    const told = await run(["schedules", "history", "cron", "bill", ...at]);
    expect(told).toMatchObject({ code: 1, text: expect.stringContaining("Error: the bank is closed") });
    expect((await run(["schedules", "list", "cron", ...at])).text).toMatch(/bill.*in \d.* ago.*failed/);
    const listed = await run(["schedules", "list", "cron", ...at, "--history", "5"]);
    expect(listed.text).toMatch(/bill.* ago.* failed, run /);
    const json = await run(["schedules", "list", "cron", ...at, "--history", "5", "--json"]);
    const ticks = [{ outcome: "failed", error: "Error: the bank is closed" }, { outcome: "run" }];
    expect(JSON.parse(json.text)).toMatchObject({ schedules: [{ name: "bill", history: ticks }] });
    expect(await run(["schedules", "list", "cron", ...at, "--history", "101"])).toMatchObject({ code: 2 });

    expect(await run(["schedules", "pause", "cron", "bill", ...at, "--yes"])).toMatchObject({ code: 0 });
    expect((await run(["schedules", "list", "cron", ...at])).text).toContain("paused");
    expect(await run(["schedules", "resume", "cron", "bill", ...at], { answer: true })).toMatchObject({ code: 0 });
    const { text } = await run(["schedules", "list", "cron", ...at, "--json"]);
    expect(JSON.parse(text)).toMatchObject({ leader: { id: "host-c" }, schedules: [{ name: "bill", paused: false }] });
  });

  it("shows the next ticks of a schedule as data, and removes it", async () => {
    const scheduler = new LeaderScheduler({ election: new LeaderElection(connected(), { name: "data" }) });
    await scheduler.reconcile([{ name: "report", kind: "mail", cron: "0 3 * * *" }]);
    expect((await run(["schedules", "list", "data"])).text).toMatch(/report.*mail/);
    const preview = await run(["schedules", "preview", "data", "report", "--limit", "2"]);
    expect(preview).toMatchObject({ code: 0, text: expect.stringMatching(/T03:00:00.000Z.*\n.*T03:00:00.000Z/) });
    expect(await run(["schedules", "remove", "data", "report"], { answer: false })).toMatchObject({ code: 1 });
    expect(await run(["schedules", "remove", "data", "report", "--yes"])).toMatchObject({ code: 0 });
    expect(await scheduler.list()).toEqual([]);
    expect(await run(["schedules", "preview", "data", "report"])).toMatchObject({ code: 2 });
  });

  it("orders nothing without a yes, and nothing for an unknown schedule", async () => {
    const election = new LeaderElection(connected(), { name: "unasked" });
    const scheduler = new LeaderScheduler({ election });
    onTestFinished(() => scheduler.stop({ drainTimeout: 0 }));
    scheduler.every("bill", YEAR_MS, () => undefined);
    scheduler.start();
    await expect.poll(async () => (await scheduler.list())[0]?.owner?.self).toBe(true);
    await expect.poll(() => run(["schedules", "list", "unasked"])).toMatchObject({ code: 0 });
    for (const verb of ["pause", "resume", "trigger"]) {
      expect(await run(["schedules", verb, "unasked", "bill"])).toMatchObject({
        code: 2,
        errors: expect.stringContaining("--yes"),
      });
      expect(await run(["schedules", verb, "unasked", "bill"], { answer: false })).toMatchObject({ code: 1 });
      expect(await run(["schedules", verb, "unasked", "bil", "--yes"])).toMatchObject({
        code: 2,
        errors: expect.stringContaining('no schedule "bil" of the election "unasked"'),
      });
    }
    expect((await scheduler.list())[0]).toMatchObject({ paused: false, last: null });
  });
});

describe("keys", () => {
  it("distinguishes a job whose worker is gone from a running job", async () => {
    const [url = ""] = urls();
    const connection = { url, maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("gone", { connection });
    let end = (): void => undefined;
    const worker = new ExclusiveWorker("gone", () => new Promise<void>((resolve) => (end = resolve)), {
      connection,
      key: "account",
      skipLockRenewal: true,
      skipStalledCheck: true,
    });
    worker.on("error", () => undefined);
    onTestFinished(async () => {
      end();
      await worker.close();
      await queue.close();
    });
    await queue.addBulk([1, 2].map(() => ({ name: "charge", data: { account: "42" } })));
    await expect.poll(async () => (await queue.counts()).active).toBe(1);
    expect((await run(["keys", "top", "gone"])).text).not.toContain("its worker is gone");
    // The remains of a worker that was killed.
    for (const key of ["bull:gone:1:lock", "bull:gone:lane:workers"]) await servers[0]?.call("DEL", key);
    expect((await run(["keys", "top", "gone"])).text).toContain("its worker is gone");
    // The second job may have been parked or not.
    expect((await run(["keys", "top", "gone"])).text).toMatch(
      /gone: 0 run, 1 had started and their workers are gone, (?:0 can run, 1 wait|1 can run, 0 wait) for their key; busy keys: 1, paused: 0\nno worker with keys runs\n/,
    );
    const { text } = await run(["keys", "explain", "gone", "1"]);
    expect(text).toContain("job 1 (active): had started, and its worker is gone");
    expect(text).toContain("no worker with keys runs");
  });

  it("lists the longest lines, explains a job, pauses and resumes a key", async () => {
    const [url = ""] = urls();
    const connection = { url, maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("console", { connection });
    let end = (): void => undefined;
    const worker = new ExclusiveWorker("console", () => new Promise<void>((resolve) => (end = resolve)), {
      connection,
      key: "account",
      concurrency: 5,
    });
    onTestFinished(async () => {
      end();
      await worker.close();
      await queue.close();
    });
    const jobs = await queue.addBulk([1, 2, 3].map(() => ({ name: "charge", data: { account: "42" } })));
    const ids = jobs.map(({ id }) => String(id));
    await expect.poll(async () => (await queue.counts()).parked).toBe(2);

    const top = await run(["keys", "top", "console"]);
    expect(top.text).toContain("console: 1 run, 0 can run, 2 wait for their key; busy keys: 1, paused: 0");
    expect(top.text).toMatch(/42 +│ 2 +│ 1/);
    const explained = await run(["keys", "explain", "console", ids[2] ?? ""]);
    expect(explained.text).toContain('key "42": behind 1 other job, job 1 has it');
    expect(await run(["keys", "explain", "console", "no-such-job"])).toMatchObject({ code: 1 });
    expect((await run(["keys", "jobs", "console", "42"])).text).toContain("key 42: job 1 has it, 2 wait\n");
    const first = await run(["keys", "jobs", "console", "42", "--limit", "1"]);
    expect(first.text).toContain("key 42: job 1 has it, 2 wait, of which these are the first 1\n");
    const inLine = await run(["keys", "jobs", "console", "42", "--json"]);
    expect(JSON.parse(inLine.text)).toMatchObject({ holder: ids[0], holders: [ids[0]], parked: ids.slice(1) });

    expect(await run(["keys", "pause", "console", "42", "--reason", "migration", "--yes"])).toMatchObject({ code: 0 });
    expect((await run(["keys", "top", "console"])).text).toContain("paused: migration");
    end();
    await expect.poll(async () => (await queue.counts()).active).toBe(0);
    expect(await run(["keys", "resume", "console", "42", "--yes"])).toMatchObject({ code: 0 });
    await expect.poll(async () => (await queue.counts()).active).toBe(1);
    expect(await run(["keys", "resume", "console", "42", "--yes"])).toMatchObject({ code: 1 });
    expect(await queue.check()).toEqual([]);
  });

  it("watches a queue, shows what exclusion would prevent, and makes the queue exclusive", async () => {
    const [url = ""] = urls();
    const connection = { url, maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("watched", { connection });
    await queue.waitUntilReady();
    const mode = ["keys", "exclusion", "watched"];
    expect(await run(mode)).toEqual({ code: 0, text: "watched: exclusive\n", errors: "" });
    expect(await run([...mode, "off", "--yes"])).toMatchObject({
      code: 2,
      errors: expect.stringContaining("on or watch"),
    });
    expect(await run([...mode, "watch"])).toMatchObject({ code: 2, errors: expect.stringContaining("--yes") });
    expect(await run([...mode, "watch"], { answer: false })).toMatchObject({ code: 1 });
    expect((await run([...mode, "watch", "--yes"])).text).toMatch(/^watched is watched\. The change took \d/);
    const ends: (() => void)[] = [];
    const worker = new ExclusiveWorker("watched", () => new Promise<void>((resolve) => ends.push(resolve)), {
      connection,
      key: "account",
      concurrency: 5,
    });
    const plain = new Worker("watched", null, { connection });
    plain.on("error", () => undefined);
    onTestFinished(async () => {
      for (const end of ends) end();
      await worker.close();
      await plain.close();
      await queue.close();
    });
    await queue.addBulk([1, 2, 3].map(() => ({ name: "charge", data: { account: "42" } })));
    await expect.poll(() => ends.length).toBe(3);
    const shown = await run(mode);
    expect(shown.code).toBe(1);
    expect(shown.text).toContain(
      "watched: watched, so jobs of a key may run at the same time\n1 key with jobs that overlap now\n",
    );
    expect(shown.text).toContain(
      "of 0 jobs that ended, 2 started while another job of the key was running, and 0 before",
    );
    expect(shown.text).toMatch(/42 +│ 2 /);
    expect((await run(["keys", "top", "watched"])).text).toContain("The queue is only watched: of 0 jobs");
    const problems = await run(["problems", "--queue", "watched", "--json"]);
    expect(JSON.parse(problems.text)).toContainEqual(
      expect.objectContaining({ code: "QUEUE_WATCHED", severity: "notice" }),
    );
    void plain.run().catch(() => undefined);
    await expect.poll(async () => (await run(mode)).text).toContain("- 1 connected worker is not an ExclusiveWorker");
    const refused = await run([...mode, "on", "--yes"]);
    expect(refused).toMatchObject({ code: 2, errors: expect.stringContaining("or pass --force") });
    await plain.close();
    await expect.poll(async () => (await run(mode)).text).toContain("Nothing prevents the change to exclusive.");
    const changing = run([...mode, "on", "--yes"]);
    await expect.poll(async () => (await queue.exclusion()).mode).toBe("on");
    expect(await run(mode)).toMatchObject({
      code: 0,
      text: expect.stringContaining("1 key with jobs that overlap now"),
    });
    for (const end of ends.splice(0)) end();
    const { code, text } = await changing;
    expect(code).toBe(0);
    expect(text).toContain(": 1 key with jobs that started before and still overlap\n");
    expect(text).toContain("watched is exclusive. The change took ");
    const again = await run([...mode, "on", "--yes", "--json"]);
    expect(JSON.parse(again.text)).toMatchObject({ queue: "watched", mode: "on", changed: false, overlapping: false });
  });

  it("shows the options of workers, drops the line of a key, and runs a failed job again", async () => {
    const [url = ""] = urls();
    const connection = { url, maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("operated", { connection });
    await queue.waitUntilReady();
    expect(await run(["keys", "policy", "operated"])).toMatchObject({ code: 1 });
    const ends: ((error?: Error) => void)[] = [];
    const worker = new ExclusiveWorker(
      "operated",
      () =>
        new Promise<void>((resolve, reject) => ends.push((error) => (error === undefined ? resolve() : reject(error)))),
      { connection, key: "account", onFailure: "halt", concurrency: 5 },
    );
    onTestFinished(async () => {
      for (const end of ends) end();
      await worker.close();
      await queue.close();
    });
    await expect.poll(() => run(["keys", "policy", "operated"])).toMatchObject({ code: 0 });
    const policy = await run(["keys", "policy", "operated", "--json"]);
    expect(JSON.parse(policy.text)).toMatchObject([{ key: "account", onFailure: "halt", nodes: 1 }]);
    const limit = ["keys", "policy", "operated", "8", "--rate", "100/60000"];
    expect(await run(["keys", "policy", "operated", "8"])).toMatchObject({ code: 1 });
    expect(await run([...limit, "--concurrency", "2", "--yes"])).toMatchObject({ code: 2 });
    expect(await run([...limit, "--remove", "--yes"])).toMatchObject({ code: 2 });
    const weighed = await run([...limit, "--weight", "3", "--yes"]);
    expect(weighed).toMatchObject({ code: 2, errors: expect.stringContaining("policy.weight must be left out") });
    const rotated = new Queue("rotated", { connection });
    await rotated.waitUntilReady();
    onTestFinished(async () => await rotated.close());
    expect(await run(["keys", "policy", "rotated", "8", "--weight", "3", "--yes"])).toMatchObject({ code: 0 });
    expect(await run(["keys", "policy", "operated", "--concurrency", "2", "--yes"])).toMatchObject({ code: 2 });
    expect(await run([...limit, "--max-waiting", "50"], { answer: false })).toMatchObject({ code: 1 });
    expect(await queue.getKeyPolicy("8")).toBeUndefined();
    expect(await run([...limit, "--max-waiting", "50", "--yes"])).toMatchObject({ code: 0 });
    expect((await run(["keys", "policy", "operated", "8"])).text).toContain("100 start in 1 min 0 s, 50 wait");
    expect(JSON.parse((await run(["keys", "policies", "operated", "--json"])).text)).toEqual({
      8: { rate: { max: 100, duration: 60_000 }, maxWaiting: { max: 50, drop: "newest" } },
    });
    expect(await run(["keys", "policy", "operated", "8", "--remove", "--yes"])).toMatchObject({ code: 0 });
    expect(await run(["keys", "policy", "operated", "8", "--remove", "--yes"])).toMatchObject({ code: 1 });

    const jobs = await queue.addBulk([1, 2, 3].map(() => ({ name: "charge", data: { account: "7" } })));
    const [first = ""] = jobs.map(({ id }) => String(id));
    await expect.poll(async () => (await queue.counts()).parked).toBe(2);
    expect(await run(["keys", "drop", "operated", "7"])).toMatchObject({ code: 2 });
    expect(await run(["keys", "drop", "operated", "7"], { answer: false })).toMatchObject({ code: 1 });
    expect(await queue.getDelayedCount()).toBe(2);
    await servers[0]?.call("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-del");
    const limited = urls().map((each) => each.replace("redis://", "redis://limited:secret@"));
    const refused = await run(["keys", "drop", "operated", "7", "--yes"], { nodes: limited.slice(0, 1) });
    expect([refused.code, refused.errors]).toEqual([2, expect.stringMatching(/can't run this command|no permission/)]);
    const dropped = await run(["keys", "drop", "operated", "7", "--yes", "--json"]);
    expect([dropped.code, JSON.parse(dropped.text)]).toEqual([0, { key: "7", dropped: 2 }]);
    expect(await queue.getDelayedCount()).toBe(0);
    expect(await run(["keys", "drop", "operated", "nobody", "--yes"])).toMatchObject({ code: 1 });

    expect(await run(["keys", "retry", "operated", first, "--yes"])).toMatchObject({ code: 1 });
    ends[0]?.(new Error("declined"));
    await expect.poll(() => queue.getFailedCount()).toBe(1);
    expect(await run(["keys", "retry", "operated", first, "--yes"])).toMatchObject({ code: 0 });
    expect(await run(["keys", "retry", "operated", "no-such-job", "--yes"])).toMatchObject({ code: 1 });
    expect(await run(["keys", "resume", "operated", "7", "--yes"])).toMatchObject({ code: 0 });
    await expect.poll(() => ends.length).toBe(2);

    const last = await queue.add("charge", { account: "7" });
    await expect.poll(async () => (await queue.counts()).parked).toBe(1);
    expect(await run(["keys", "cancel", "operated", "--yes"])).toMatchObject({ code: 2 });
    expect(await run(["keys", "cancel", "operated", first], { answer: false })).toMatchObject({ code: 1 });
    const cancelled = await run([
      "keys",
      "cancel",
      "operated",
      String(last.id),
      "--reason",
      "twice",
      "--yes",
      "--json",
    ]);
    expect([cancelled.code, JSON.parse(cancelled.text)]).toEqual([0, { jobId: last.id, found: "parked" }]);
    expect((await queue.getJob(String(last.id)))?.failedReason).toContain(": twice");
    expect(await run(["keys", "cancel", "operated", String(last.id), "--yes"])).toMatchObject({ code: 1 });
    expect(await run(["keys", "cancel", "operated", "no-such-job", "--yes"])).toMatchObject({ code: 1 });
    const all = await run(["keys", "cancel", "operated", "--key", "7", "--yes"]);
    expect([all.code, all.text]).toEqual([0, "1 job of key 7 cancelled: 1 running, 0 parked, 0 waiting\n"]);
    ends[1]?.(new Error("declined"));
    await expect.poll(async () => (await queue.getJob(first))?.failedReason).toContain("was cancelled by");
    expect(await run(["keys", "cancel", "operated", "--key", "7", "--yes"])).toMatchObject({ code: 1 });
  });

  it("names a queue that does not exist, and leaves nothing behind", async () => {
    const { code, errors } = await run(["keys", "top", "nowhere"]);
    expect(errors).toContain('there is no queue "nowhere" with the prefix "bull"');
    expect(code).toBe(2);
  });

  describe("of a queue in partitions on two servers", () => {
    const division = { partitions: 4, key: "account" };
    const keys = ["0", "1", "2", "3", "4", "5"];
    let queue: PartitionedQueue;
    let jobIds: string[];
    let setups: unknown[];

    beforeAll(async () => {
      const connection = urls()
        .slice(0, 2)
        .map((url) => ({ url, maxRetriesPerRequest: null }));
      queue = new PartitionedQueue("divided", { ...division, connection });
      const worker = new PartitionedWorker(
        "divided",
        async () => {
          throw new UnrecoverableError("as wanted");
        },
        { ...division, connection, concurrency: 5, onFailure: "halt" },
      );
      worker.on("error", () => undefined);
      // The first job of each key halts the key, and the second job waits.
      await queue.addBulk([...keys, ...keys].map((account) => ({ name: "charge", data: { account } })));
      const isHalted = async (): Promise<boolean> => {
        const { pausedKeys, parked } = await queue.counts();
        return pausedKeys === 6 && parked === 6;
      };
      await vi.waitUntil(isHalted, 20_000);
      setups = JSON.parse((await run(["keys", "policy", "divided", "--json"])).text) as unknown[];
      await worker.close();
      jobIds = (await queue.getJobs(["failed"], 0, 9)).map((job) => `${String(job.data.account)} ${String(job.id)}`);
    });
    afterAll(() => queue.close());

    it("are listed for all partitions, and commands for a key go to its partition", async () => {
      expect(new Set(keys.map((key) => partitionOf(key, 4))).size).toBeGreaterThan(1);
      expect(setups).toMatchObject([{ key: "account", onFailure: "halt" }]);
      const { text, code } = await run(["keys", "top", "divided"]);
      expect(text).toContain("divided: 0 run, 0 can run, 6 wait for their key; busy keys: 0, paused: 6");
      expect(code).toBe(0);
      expect((await run(["keys", "jobs", "divided", "3"])).text).toContain("key 3: ");
      expect((await run(["keys", "pause", "divided", "new", "--yes"])).text).toBe("key new is paused\n");
      expect((await run(["keys", "resume", "divided", "new", "--yes"])).text).toBe("key new goes on\n");
      expect((await run(["keys", "drop", "divided", "5", "--yes"])).text).toBe("1 jobs of key 5 are removed\n");
      await run(["keys", "policy", "divided", "1", "--concurrency", "2", "--yes"]);
      await run(["keys", "policy", "divided", "2", "--max-waiting", "9", "--yes"]);
      const policies = JSON.parse((await run(["keys", "policies", "divided", "--json"])).text) as object;
      expect(policies).toMatchObject({ 1: { concurrency: 2 }, 2: { maxWaiting: { max: 9 } } });
    });

    it("distinguish jobs with the same ID by their key", async () => {
      const [key, id] = (jobIds.find((each) => each.endsWith(" 1")) ?? "").split(" ") as [string, string];
      expect(jobIds.filter((each) => each.endsWith(" 1")).length).toBeGreaterThan(1);
      const { errors, code } = await run(["keys", "explain", "divided", id]);
      expect(errors).toMatch(/partitions have a job 1\nSelect the job by its key with --key/);
      expect(code).toBe(2);
      expect((await run(["keys", "explain", "divided", id, "--key", key])).text).toContain("job 1 (failed)");
      expect((await run(["keys", "retry", "divided", id, "--key", key, "--yes"])).code).toBe(0);
      expect(await (await queue.getJob(id, { key }))?.getState()).not.toBe("failed");
      expect((await run(["keys", "explain", "divided", "4711"])).code).toBe(1);
    });

    it("need all servers", async () => {
      const { errors, code } = await run(["keys", "top", "divided"], { nodes: urls().slice(0, 1) });
      expect(errors).toContain("the queue is on 2 servers, but 1 is given");
      expect(code).toBe(2);
    });

    it("are shown on the page as one queue, next to each named partition", async () => {
      const serving = start(["serve", "--json", "--queue", "divided,{divided-1of4}"]);
      const found = start(["serve", "--json"]);
      const queuesAt = async ({ text }: Running): Promise<readonly { name: string; pausedKeys: number }[]> => {
        await expect.poll(text).toContain("url");
        const { url } = JSON.parse(text()) as { url: string };
        return ((await (await fetch(`${url}state`)).json()) as { queues: { name: string; pausedKeys: number }[] })
          .queues;
      };
      const [all, one] = await queuesAt(serving);
      expect(all).toMatchObject({ name: "divided", pausedKeys: 6 });
      expect(one).toMatchObject({ name: "{divided-1of4}" });
      const divided = (await queuesAt(found)).filter(({ name }) => name.includes("divided"));
      expect(divided).toMatchObject([{ name: "divided", pausedKeys: 6 }]);
      expect(await serving.end()).toMatchObject({ code: 0 });
      expect(await found.end()).toMatchObject({ code: 0 });
    });
  });
});

describe("a queue whose Redis goes away", () => {
  it.each([
    ["watched", ["keys", "top", "away", "--json", "--watch", "0.1"]],
    ["served", ["serve", "--json"]],
  ])("does not keep a command from its end: %s", async (how, args) => {
    const server = await startRedis();
    onTestFinished(() => server.stop());
    const queue = new ExclusiveQueue("away", { connection: { url: server.url, maxRetriesPerRequest: null } });
    queue.on("error", () => undefined);
    await queue.waitUntilReady();
    await queue.close();
    const running = start(args, { nodes: [server.url] });
    await expect.poll(running.text).not.toBe("");
    await server.stop();
    let told = "";
    const isQuiet = (): boolean => told === (told = running.text());
    await expect.poll(isQuiet, { interval: 300 }).toBe(true);
    const { code, errors } = await running.end();
    expect(code).toBe(0);
    // The page's log reports the outage. A command writes nothing else.
    const lines = errors.split("\n").filter((line) => line !== "");
    expect(lines.filter((line) => !line.startsWith('{"level":'))).toEqual([]);
    if (how === "watched") expect(lines).toEqual([]);
  });
});

describe("serve", () => {
  it("serves the page on the loopback, read-only, until it is ended", async () => {
    const serving = start(["serve", "--json", "--election", "served"]);
    await expect.poll(serving.text).toContain("url");
    const { url } = JSON.parse(serving.text()) as { url: string };
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
    const state = (await (await fetch(`${url}state`)).json()) as { actions: boolean; elections: { name: string }[] };
    expect(state.actions).toBe(false);
    expect(state.elections.map(({ name }) => name)).toContain("served");
    expect(await serving.end()).toMatchObject({ code: 0, errors: "" });
    await expect(fetch(url)).rejects.toThrow("fetch failed");
  });

  it("shows the found queues, under the allowed host names", async () => {
    const [url = ""] = urls();
    const queue = new ExclusiveQueue("served", { connection: { url, maxRetriesPerRequest: null } });
    onTestFinished(() => queue.close());
    await queue.waitUntilReady();
    const serving = start(["serve", "--json", "--allow-host", "ops.example.com", "--actions"]);
    await expect.poll(serving.text).toContain("url");
    const page = JSON.parse(serving.text()) as { url: string };
    const { actions, queues } = (await (await fetch(`${page.url}state`)).json()) as {
      actions: boolean;
      queues: { name: string }[];
    };
    expect(actions).toBe(true);
    expect(queues.map(({ name }) => name)).toContain("served");
    expect(await serving.end()).toMatchObject({ code: 0 });
  });

  it("does not confuse a queue of a longer prefix with its own queues", async () => {
    const [url = ""] = urls();
    const [own, other] = ["bull", "bull:eu"].map(
      (prefix) => new Queue("prefixed", { prefix, connection: { url, maxRetriesPerRequest: null } }),
    ) as [Queue, Queue];
    onTestFinished(async () => {
      await other.obliterate();
      await Promise.all([own.close(), other.close()]);
    });
    await Promise.all([own.waitUntilReady(), other.waitUntilReady()]);
    const serving = start(["serve", "--json"]);
    await expect.poll(serving.text).toContain("url");
    const page = JSON.parse(serving.text()) as { url: string };
    const { queues } = (await (await fetch(`${page.url}state`)).json()) as { queues: { name: string }[] };
    const names = queues.map(({ name }) => name);
    expect(names).toContain("prefixed");
    expect(names.filter((name) => name.includes(":"))).toEqual([]);
    expect(await serving.end()).toMatchObject({ code: 0, errors: "" });
  });

  it("serves the data of the other nodes while the first node is away", async () => {
    const serving = start(["serve", "--json"], { nodes: [URL_WITH_SECRET, ...urls().slice(1)] });
    await expect.poll(serving.text, { timeout: 20_000 }).toContain("url");
    const { url } = JSON.parse(serving.text()) as { url: string };
    const { queues } = (await (await fetch(`${url}state`)).json()) as { queues: unknown[] };
    expect(queues).toEqual([]);
    const { code, errors } = await serving.end();
    expect(code).toBe(0);
    expect(errors).toMatch(/^cannot reach 127\.0\.0\.1:1: .*\nNo queues are shown/);
    expect(errors).not.toContain("tell-nobody");
  });

  it("logs a node that goes down, as a line of pino without secrets", async () => {
    await using own = await startRedis();
    const address = `redis://:tell-nobody@${own.host}:${own.port}`;
    await own.call("CONFIG", "SET", "requirepass", "tell-nobody");
    const serving = start(["serve", "--json"], { nodes: [address] });
    await expect.poll(serving.text, { timeout: 20_000 }).toContain("url");
    await own.kill();
    await expect.poll(serving.errors, { timeout: 20_000 }).toContain("x.redlock.nodeChanged");
    const { errors } = await serving.end();
    const lines = errors
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines).toContainEqual(
      expect.objectContaining({
        level: 40,
        event: "x.redlock.nodeChanged",
        state: "down",
        msg: "lock node changed its state",
      }),
    );
    expect(errors).not.toContain("tell-nobody");
  });

  it("explains why it cannot listen", async () => {
    const { code, errors } = await run(["serve", "--host", "192.0.2.1"]);
    expect(errors).toContain("cannot listen");
    expect(code).toBe(2);
  });
});

describe("a command that fails", () => {
  it("names the unreachable node, the reason and a solution, without the password", async () => {
    for (const command of [["check"], ["locks", "inspect", "a"], ["keys", "top", "a"]]) {
      const { code, text, errors } = await run(command, { nodes: [URL_WITH_SECRET] });
      expect(errors).toMatch(/cannot reach 127\.0\.0\.1:1: .*ECONNREFUSED/);
      expect(errors).toContain("Is Redis running there?");
      expect(errors + text).not.toContain("tell-nobody");
      expect(errors).not.toContain("    at ");
      expect(code).toBe(2);
    }
  });

  it.each(["another password", "no rights"])("shows no password to which a node gives %s", async (what) => {
    await using own = await startRedis();
    const password = what === "no rights" ? "tell-nobody" : "another";
    await own.call(
      "ACL",
      "SETUSER",
      "operator",
      "on",
      `>${password}`,
      "~*",
      "&*",
      ...(password === "another" ? ["+@all"] : []),
    );
    const url = `redis://operator:tell-nobody@127.0.0.1:${own.port}`;
    for (const command of [
      ["check"],
      ["locks", "inspect", "a"],
      ["locks", "release", "a", "--yes"],
      ["leader", "status", "a"],
      ["schedules", "list", "a"],
      ["keys", "top", "a"],
      ["keys", "pause", "a", "1", "--yes"],
      ["check", "--json"],
    ]) {
      const { code, text, errors } = await run(command, { nodes: [url] });
      expect(errors + text).not.toContain("tell-nobody");
      expect(errors + text).not.toBe("");
      expect(code).toBeGreaterThan(0);
    }
  });

  it.each([
    [["check", "--cluster"], "operator:tell-nobody@127.0.0.1"],
    [["locks", "inspect", "a"], "operator:tell-nobody@127.0.0.1"],
    [["keys", "top", "q"], "operator:tell-nobody@127.0.0.1"],
    [["keys", "top", "q"], "http://operator:tell-nobody@127.0.0.1"],
    [["keys", "jobs", "q", "1", "--cluster"], "redis:/operator:tell-nobody@127.0.0.1"],
    [["serve"], "redis:/operator:tell-nobody@127.0.0.1"],
    [["keys", "top", "q"], "redis://operator:tell-nobody#1@127.0.0.1"],
    [["keys", "top", "q"], "redis://operator:tell-nobody,1@127.0.0.1"],
    [["keys", "top", "q"], "redis://operator:4711,tell-nobody@127.0.0.1"],
  ])("shows no password of a bad address: %j at %s", async (command, address) => {
    for (const [answer, source] of [
      [await run(command, { nodes: [address] }), "REDIS_URL"],
      [await run(["--redis", address, ...command]), "--redis"],
    ] as const) {
      expect(answer.code).toBe(2);
      expect(answer.errors).toContain(`${source}: node must be`);
      expect(answer.text + answer.errors).not.toMatch(/tell-nobody|4711/);
    }
  });

  it.each([
    [["redis://operator:tell-nobody@127.0.0.1", "check"]],
    [["operator:tell-nobody@127.0.0.1", "check"]],
    [["check", "--reds=redis://operator:tell-nobody@127.0.0.1"]],
    [["check", "--max-ttl", "redis://operator:tell-nobody@127.0.0.1"]],
  ])("shows no password of an address that stands in the wrong place: %j", async (args) => {
    const { code, errors, text } = await run(args);
    expect(code).toBe(2);
    expect(errors).toContain("***@127.0.0.1");
    expect(text + errors).not.toContain("tell-nobody");
  });

  it("names the variable that a bad address came from", async () => {
    const { code, errors } = await run(["check"], { nodes: ["http://x"] });
    expect(errors).toMatch(/^REDIS_URL: node must be a redis:\/\//);
    expect(code).toBe(2);
    const { errors: unreachable } = await run(["check"], { nodes: [URL_WITH_SECRET] });
    expect(unreachable).toContain("REDIS_URL");
    expect(unreachable).not.toContain("--redis");
  });

  it("ignores empty parts of REDIS_URL, and treats an empty REDIS_URL as missing", async () => {
    const { code, text } = await run(["locks", "inspect", "a"], { nodes: ["", ...urls(), " ", ""] });
    expect(text).toContain("a: free");
    expect(code).toBe(0);
    for (const nodes of [[], [""], ["", " "]]) {
      const { errors } = await run(["locks", "inspect", "a"], { nodes });
      expect(errors).not.toContain("characters");
      expect(errors).toMatch(/^(cannot reach localhost:6379.*\n.*--redis or REDIS_URL.*\n)?$/);
    }
  });

  it("names the nodes that are away", async () => {
    const { code, text } = await run(["locks", "inspect", "a"], { nodes: [...urls().slice(0, 2), URL_WITH_SECRET] });
    expect(text).toContain("a: free");
    expect(text).toContain("127.0.0.1:1");
    expect(text).not.toContain("tell-nobody");
    expect(code).toBe(0);
  });

  it.each([
    [["locks"], "watch"],
    [["nonsense"], "unknown command"],
    [["locks", "inspect"], "missing required argument"],
    [["check", "--watch", "-1"], "seconds"],
    [["keys", "top", "q", "--limit", "0"], "integer from 1"],
    [["check", "--redis", "http://x"], "--redis: node must be a redis://"],
    [["check", "--redis", ","], "--redis needs an address"],
  ])("answers %j with what is wrong, and exit code 2", async (args, message) => {
    const { code, errors } = await run(args);
    expect(errors).toContain(message);
    expect(code).toBe(2);
  });

  it("does not repeat an argument too many", async () => {
    const { code, text, errors } = await run(["locks", "inspect", "a", "\u001b[2J"]);
    expect({ code, text }).toEqual({ code: 2, text: "" });
    expect(errors).toContain("too many arguments");
    expect(errors).not.toMatch(/[^\P{Cc}\n]/u);
  });

  it.each([
    [["\u001b[2Jlocks"]],
    [["locks", "\u001b[2Jinspect"]],
    [["--\u001b[2J", "check"]],
    [["check", "--max-ttl", "\u001b[2J"]],
    [["check", "--watch=\u001b[2J"]],
    [["keys", "policy", "q", "--max-waiting", "\u001b[2J"]],
  ])("writes no control character of a wrong command line: %j", async (args) => {
    const { code, text, errors } = await run(args);
    expect({ code, text }).toEqual({ code: 2, text: "" });
    expect(errors).not.toMatch(/[^\P{Cc}\n]/u);
    expect(errors).toContain("\\u001b[2J");
  });

  it("prints the version of its package with exit code 0", async () => {
    const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
      readonly version: string;
    };
    expect(await run(["--version"])).toEqual({ code: 0, text: `${version}\n`, errors: "" });
  });

  it("helps with exit code 0", async () => {
    const { code, text } = await run(["--help"]);
    expect(text).toContain("Exit codes");
    expect(code).toBe(0);
  });
});

function startProcess(args: readonly string[]) {
  const bin = new URL("../src/bin.ts", import.meta.url);
  const child = spawn(process.execPath, ["--import", "tsx", bin.pathname, ...args], {
    env: { ...process.env, REDIS_URL: urls().join(","), TSX_TSCONFIG_PATH: "tsconfig.check.json" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const exited = new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal)));
  return { child, exited };
}

describe("a process that watches", () => {
  const watch = ["locks", "watch", "console:process", "--json", "--watch", "0.1"];

  it("ends with its exit code when it is interrupted", async () => {
    const { child, exited } = startProcess(watch);
    await new Promise((resolve) => child.stdout.once("data", resolve));
    child.kill("SIGINT");
    expect(await exited).toBe(0);
  });

  it("ends with its exit code, without output, when its reader has gone", async () => {
    const { child, exited } = startProcess(watch);
    let errors = "";
    child.stderr.on("data", (chunk: Buffer) => {
      errors += String(chunk);
    });
    await new Promise((resolve) => child.stdout.once("data", resolve));
    child.stdout.destroy();
    expect(await exited).toBe(0);
    expect(errors).toBe("");
  });
});
