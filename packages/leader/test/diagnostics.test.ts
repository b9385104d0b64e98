/** Reports of an election about its nodes and losses, in logs and by `health()`. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { LeaderElection, type LeaderElectionOptions, type LeaderEvents } from "@x/leader";
import { type Logger, logTo, Redlock } from "@x/redlock-core";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { untilAborted } from "./support/lab.ts";
import { LEASE, type Nodes, startNodes } from "./support/redis.ts";
import { VirtualLab } from "./support/virtual-lab.ts";

interface Line {
  readonly level: string;
  readonly message: string;
  readonly facts: object;
}

let lines: Line[] = [];
beforeEach(() => {
  lines = [];
  const stop = logTo(logger);
  return () => stop();
});

const log =
  (level: Line["level"]) =>
  (facts: object, message: string): void => {
    if ((facts as { readonly event: string }).event.startsWith("x.leader.")) lines.push({ level, message, facts });
  };
const logger: Logger = {
  isLevelEnabled: (level) => level !== "debug",
  debug: log("debug"),
  info: log("info"),
  warn: log("warn"),
  error: log("error"),
};
const logged = (): string[] => lines.map(({ level, message }) => `${level}: ${message}`);

describe("an election", () => {
  let nodes: Nodes;
  const elections: LeaderElection[] = [];
  afterEach(async () => {
    await Promise.all(elections.splice(0).map((election) => election.stop({ drainTimeout: 0 })));
    await nodes[Symbol.asyncDispose]();
  });

  function candidate(redlock: Redlock, options: Partial<LeaderElectionOptions> = {}): LeaderElection {
    const election = new LeaderElection(redlock, {
      name: "jobs",
      ...LEASE,
      cooldown: { initial: 10 },
      ...options,
    });
    elections.push(election);
    return election;
  }

  it("reports immediately and once that its nodes are in quarantine", async () => {
    nodes = await startNodes(3);
    const election = candidate(nodes.redlock({ ttl: 2_500, maxTtl: 2_500, quarantine: true }));
    const told: LeaderEvents["quarantined"][] = [];
    election.on("quarantined", (facts) => told.push(facts));
    const campaigning = election.campaign();
    await expect.poll(() => told.length).toBe(1);
    expect(told[0]?.quarantineLeftMs).toBeLessThan(4_000);
    expect(election.health().lastError?.message).toMatch(/^nodes may vote again in \d+ ms: a leader is possible then$/);
    await using term = await campaigning;
    expect(term.isCurrent()).toBe(true);
    expect(election.health().lastError).toBeUndefined();
    expect(logged()).toEqual(["warn: no leader is possible until the nodes vote again", "info: elected leader"]);
  });

  it("reports immediately and once that a node refuses its password, and keeps the reason for a campaign that gave up", async () => {
    nodes = await startNodes(1);
    const [server] = nodes.servers;
    await server?.call("CONFIG", "SET", "requirepass", "right");
    const redlock = new Redlock([{ path: server?.path ?? "", password: "wrong" }], { ttl: 3_000, maxTtl: 3_000 });
    const election = candidate(redlock);
    const gaveUp = new Error("gave up");
    await expect(election.leader()).rejects.toThrow(/sock: not connected, and no request is queued: WRONGPASS/);
    const controller = new AbortController();
    const campaigning = election.campaign({ signal: controller.signal });
    await expect.poll(() => logged()).toEqual(["warn: lock node is down"]);
    expect(lines[0]?.facts).toMatchObject({ election: "jobs", node: server?.path });
    const refusals = async (): Promise<number> =>
      Number(/errorstat_WRONGPASS:count=(\d+)/.exec(String(await server?.call("INFO", "errorstats")))?.[1] ?? 0);
    const before = await refusals();
    await expect.poll(refusals).toBeGreaterThan(before + 2);
    controller.abort(gaveUp);
    await expect(campaigning).rejects.toBe(gaveUp);
    expect(logged()).toEqual(["warn: lock node is down"]);
    expect(election.health().lastError?.message).toMatch(/sock: .*WRONGPASS/);
    await redlock.close();
  });

  it("reports a node that was down before it campaigned, and again when the node goes down again", async () => {
    nodes = await startNodes(1);
    const [server] = nodes.servers;
    const redlock = nodes.redlock();
    await server?.kill();
    await redlock.inspect("anything");
    const election = candidate(redlock);
    const down: string[] = [];
    election.on("nodeFailed", ({ node, error }) => down.push(`${node}: ${error.message}`));
    const over = new AbortController();
    const running = election.run((term) => new Promise((resolve) => term.signal.addEventListener("abort", resolve)), {
      signal: over.signal,
    });
    await expect.poll(() => down).toEqual([expect.stringContaining("not connected")]);
    await server?.start();
    await expect.poll(() => election.isLeader(), { timeout: 20_000 }).toBe(true);
    expect([down.length, election.health().lastError]).toEqual([1, undefined]);
    await server?.kill();
    await expect.poll(() => down.length).toBe(2);
    await expect.poll(() => logged(), { timeout: 10_000 }).toContain("warn: leadership ended");
    over.abort();
    await running;
  });

  it("logs a requested end at level info", async () => {
    nodes = await startNodes(1);
    const election = candidate(nodes.redlock());
    const term = await election.campaign();
    await term.resign();
    expect(logged()).toEqual(["info: elected leader", "info: leadership ended"]);
  });

  it("reports its renewals and its end on diagnostics channels", async () => {
    nodes = await startNodes(1);
    const messages: string[] = [];
    const names = ["x.leader.elected", "x.leader.renewed", "x.leader.ended"] as const;
    const listeners = names.map(
      (name) => (message: unknown) => void messages.push(`${name} ${typeof (message as { term: unknown }).term}`),
    );
    for (const [index, name] of names.entries()) subscribe(name, listeners[index] ?? (() => undefined));
    const election = candidate(nodes.redlock());
    const term = await election.campaign();
    await expect.poll(() => messages).toContain("x.leader.renewed number");
    await term.resign();
    for (const [index, name] of names.entries()) unsubscribe(name, listeners[index] ?? (() => undefined));
    expect(messages[0]).toBe("x.leader.elected number");
    expect(messages.at(-1)).toBe("x.leader.ended number");
  });

  it("passes each error once to an error listener that rejects, and warns of the listener's own errors", async () => {
    nodes = await startNodes(1);
    const election = candidate(nodes.redlock());
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning.message);
    process.on("warning", onWarning);
    onTestFinished(() => void process.off("warning", onWarning));
    const thrown = new Error("a listener throws");
    const errors: unknown[] = [];
    election.on("elected", () => {
      throw thrown;
    });
    election.on("error", (told): unknown => {
      errors.push(told);
      return errors.length > 100 ? undefined : Promise.reject(new Error("sink is down"));
    });
    await using term = await election.campaign();
    expect(term.isCurrent()).toBe(true);
    await expect.poll(() => warnings).toContain("sink is down");
    expect(errors).toEqual([thrown]);
  });
});

describe("an election in virtual time", () => {
  it.each([
    [0, ["warn: task runs on without its lease", "warn: task runs on without its lease"]],
    [100, ["warn: task runs on without its lease", "error: task runs on without its lease"]],
  ])("logs a task that outlives its lease by %i ms in %j", async (ms, expected) => {
    const lab = new VirtualLab();
    const election = lab.candidate("jobs");
    const over = new AbortController();
    const running = election.run(
      async (term) => {
        await untilAborted(term);
        if (ms > 0) await new Promise<void>((resolve) => void lab.clock.schedule(ms, resolve));
        over.abort();
      },
      { signal: over.signal },
    );
    await lab.poll(() => election.isLeader()).toBe(true);
    await lab.clock.until(lab.redlock().forceRelease("leader:jobs"));
    await lab.clock.until(running);
    expect(logged().filter((line) => line.includes("without its lease"))).toEqual(expected);
    expect(logged()).toContain("warn: leadership ended");
  });
});
