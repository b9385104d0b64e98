/** A scheduler on three replicas and three lock nodes without persistence, while both are killed, frozen and restarted. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Child, temporaryFolder } from "@x/test-support";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Nodes, startNodes } from "../support/redis.ts";
import { judge, readRuns, spawnReplica } from "../support/runs.ts";

const EVERY_MS = 200;
const DURATIONS = { leaseDuration: 1_500, renewDeadline: 1_000, retryPeriod: 200 };
const MAX_TTL = 2_000;
/** A restarted node votes again after `maxTtl` and a little. */
const QUARANTINE_MS = MAX_TTL + 800;

describe("a scheduler under faults", () => {
  let nodes: Nodes;
  let file: string;
  let replicas: Child[];
  let count = 0;
  beforeEach(async () => {
    nodes = await startNodes(3);
    file = join(temporaryFolder(), "runs.jsonl");
    writeFileSync(file, "");
    replicas = [];
  });
  afterEach(async () => {
    await Promise.all(replicas.map((replica) => replica[Symbol.asyncDispose]()));
    await nodes[Symbol.asyncDispose]();
  });

  function start(slowMs?: number): Child {
    count += 1;
    const slow = slowMs === undefined ? {} : { slowMs };
    const replica = spawnReplica({
      paths: nodes.paths,
      id: `r${count}`,
      file,
      maxTtl: MAX_TTL,
      everyMs: EVERY_MS,
      durations: DURATIONS,
      ...slow,
    });
    replicas.push(replica);
    return replica;
  }

  async function until(ms: number): Promise<void> {
    const end = Date.now() + ms;
    await expect.poll(() => Date.now(), { timeout: ms + 5_000 }).toBeGreaterThan(end);
  }

  const runCount = (): number => readRuns(file).length;
  const lastTerm = (replica: Child): number =>
    Math.max(0, ...messages(replica, "elected").map((message) => message.term));
  const leader = (): Child | undefined => {
    const newest = replicas.filter((replica) => replica.isRunning).toSorted((a, b) => lastTerm(b) - lastTerm(a))[0];
    if (newest === undefined || lastTerm(newest) === 0) return undefined;
    return messages(newest, "lost").some((lost) => lost.term === lastTerm(newest)) ? undefined : newest;
  };
  /** What each node has of the register, so that a tick which ran twice can be explained. */
  const nodeStates = (): Promise<string[]> =>
    Promise.all(
      nodes.servers.map(async (server, index) => {
        const hash = await Promise.race([
          server.call("HGETALL", "{leader:chaos}:register").then(String, String),
          new Promise<string>((resolve) => setTimeout(() => resolve("silent"), 200)),
        ]);
        return `node ${index} at ${Date.now()}: ${hash}`;
      }),
    );
  const progress = async (ticks: number): Promise<void> => {
    const before = runCount();
    await expect.poll(runCount, { timeout: 20_000 }).toBeGreaterThan(before + 2 * ticks);
  };

  it("runs no tick twice and misses none in the window, through sixteen faults", async () => {
    for (let index = 0; index < 3; index += 1) start();
    await until(QUARANTINE_MS);
    await progress(5);
    const faults: (() => Promise<void>)[] = [
      async () => {
        await leader()?.kill();
        start();
      },
      async () => {
        const frozen = leader();
        frozen?.freeze();
        await progress(3);
        frozen?.thaw();
      },
      async () => {
        await nodes.servers[count % 3]?.restart();
        await until(QUARANTINE_MS);
      },
      async () => {
        await leader()?.kill("SIGTERM");
        start();
      },
    ];
    const done: string[] = [];
    const seen: string[] = [];
    for (let round = 0; round < 4; round += 1) {
      for (const [kind, fault] of faults.entries()) {
        await expect.poll(leader, { timeout: 20_000 }).toBeDefined();
        seen.push(`before ${round}.${kind}`, ...(await nodeStates()));
        await fault();
        done.push(`${round}.${kind}`);
        seen.push(`after ${round}.${kind}`, ...(await nodeStates()));
        await progress(3);
      }
    }
    await progress(10);
    const last = leader();
    await last?.kill("SIGTERM");
    for (const replica of replicas) if (replica.isRunning) await replica.kill("SIGTERM");
    const runs = readRuns(file);
    const once = judge(runs, "once", EVERY_MS);
    const least = judge(runs, "least", EVERY_MS);
    expect(done.length).toBe(16);
    expect(once.ticks).toBeGreaterThan(100);
    const context = (wrong: readonly { readonly id: string }[]): string =>
      [
        ...wrong.flatMap(({ id }) => runs.filter((run) => run.id === id)).map((run) => JSON.stringify(run)),
        ...(wrong.length > 0 ? [...seen, ...replicas.flatMap(({ messages: told }) => JSON.stringify(told))] : []),
      ].join("\n");
    expect(once.duplicates, context(once.duplicates)).toEqual([]);
    expect(least.missed, seen.join("\n")).toEqual([]);
    // A leader that dies between the claim of a tick and its handler takes that tick with it: at most once means that, too.
    expect(once.missed.length).toBeLessThanOrEqual(faults.length * 3);
    // ... and at least once means that the next one runs it again, by the same id, and says so.
    const repeated = least.duplicates.filter((run) => run.attempt === 1);
    expect(repeated, context(repeated)).toEqual([]);
  }, 240_000);

  it("runs a tick again that its leader began and did not finish, under the same id", async () => {
    const first = start(400);
    await expect
      .poll(() => readRuns(file).some((run) => run.schedule === "slow" && run.event === "start"), { timeout: 30_000 })
      .toBe(true);
    const begun = readRuns(file).find((run) => run.schedule === "slow" && run.event === "start");
    await first.kill();
    expect(readRuns(file).some((run) => run.id === begun?.id && run.event === "end")).toBe(false);
    start(400);
    await expect
      .poll(() => readRuns(file).filter((run) => run.id === begun?.id && run.event === "end").length, {
        timeout: 30_000,
      })
      .toBe(1);
    const again = readRuns(file).filter((run) => run.id === begun?.id);
    expect(again.map((run) => [run.event, run.attempt])).toEqual([
      ["start", 1],
      ["start", 2],
      ["end", 2],
    ]);
  });
});

function messages(
  replica: Child,
  type: "elected" | "lost",
): readonly { readonly type: string; readonly term: number }[] {
  return (replica.messages as { readonly type: string; readonly term: number }[]).filter(
    (message) => message.type === type,
  );
}
