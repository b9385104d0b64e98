/** A scheduler on three replicas and three lock nodes without persistence, while both are killed, frozen and restarted. */
import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Child, temporaryFolder } from "@x/test-support";
import { describe, it, vi } from "vitest";
import { type Nodes, startNodes } from "../support/redis.ts";
import { judge, type Run, readRuns, spawnReplica } from "../support/runs.ts";

const EVERY_MS = 200;
const DURATIONS = { leaseDuration: 1_500, renewDeadline: 1_000, retryPeriod: 200 };
const MAX_TTL = 2_000;

/** Lock nodes, replicas that end with the nodes, and a record of the replicas' runs. */
class Scene implements AsyncDisposable {
  readonly nodes: Nodes;
  readonly file: string;
  readonly replicas: Child[] = [];

  constructor(nodes: Nodes) {
    this.nodes = nodes;
    this.file = join(mkdtempSync(join(temporaryFolder(), "chaos-")), "runs.jsonl");
    writeFileSync(this.file, "");
  }

  get runs(): readonly Run[] {
    return readRuns(this.file);
  }

  start(slowMs?: number): Child {
    const slow = slowMs === undefined ? {} : { slowMs };
    const replica = spawnReplica({
      paths: this.nodes.paths,
      id: `r${this.replicas.length + 1}`,
      file: this.file,
      maxTtl: MAX_TTL,
      everyMs: EVERY_MS,
      durations: DURATIONS,
      ...slow,
    });
    this.replicas.push(replica);
    return replica;
  }

  /** The replica that was elected last, unless it has died or reported the end of its term. */
  leader(): Child | undefined {
    const newest = this.replicas
      .filter((replica) => replica.isRunning)
      .toSorted((a, b) => lastTerm(b) - lastTerm(a))[0];
    if (newest === undefined || lastTerm(newest) === 0) return undefined;
    return messages(newest, "ended").some((end) => end.term === lastTerm(newest)) ? undefined : newest;
  }

  /** The register of each node, to explain a tick that ran twice. */
  nodeStates(): Promise<string[]> {
    return Promise.all(
      this.nodes.servers.map(async (server, index) => {
        const hash = await Promise.race([
          server.call("HGETALL", "{leader:chaos}:register").then(String, String),
          new Promise<string>((resolve) => setTimeout(() => resolve("silent"), 200)),
        ]);
        return `node ${index} at ${Date.now()}: ${hash}`;
      }),
    );
  }

  /** Resolves when `ticks` more ticks have run. */
  async progress(ticks: number): Promise<void> {
    const before = this.runs.length;
    await vi.waitUntil(() => this.runs.length > before + 4 * ticks, { timeout: 20_000 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica[Symbol.asyncDispose]()));
    await this.nodes[Symbol.asyncDispose]();
  }
}

async function startScene(): Promise<Scene> {
  return new Scene(await startNodes(3));
}

// Each test waits for leases and quarantines, on its own nodes.
describe.concurrent("a scheduler under faults", () => {
  it.for([0, 1])(
    "runs no tick twice and misses none in the window, through eight faults: %i",
    { timeout: 240_000 },
    async (own, { expect }) => {
      await using scene = await startScene();
      const { nodes, replicas } = scene;
      for (let index = 0; index < 3; index += 1) scene.start();
      await scene.progress(5);
      const observer = nodes.redlock({ quarantine: true, ttl: MAX_TTL, maxTtl: MAX_TTL });
      const faults: (() => Promise<void>)[] = [
        async () => {
          await scene.leader()?.kill();
          scene.start();
        },
        async () => {
          const frozen = scene.leader();
          frozen?.freeze();
          await scene.progress(3);
          frozen?.thaw();
        },
        async () => {
          const node = (replicas.length + own) % 3;
          await nodes.servers[node]?.restart();
          const quarantineLeftMs = async (): Promise<number | undefined> =>
            (await observer.inspect("leader:chaos")).nodes[node]?.quarantineLeftMs;
          await expect.poll(quarantineLeftMs, { timeout: 20_000 }).toBe(0);
        },
        async () => {
          await scene.leader()?.kill("SIGTERM");
          scene.start();
        },
      ];
      const done: string[] = [];
      const seen: string[] = [];
      for (let round = 0; round < 2; round += 1) {
        for (const [kind, fault] of faults.entries()) {
          await expect.poll(() => scene.leader(), { timeout: 20_000 }).toBeDefined();
          seen.push(`before ${round}.${kind}`, ...(await scene.nodeStates()));
          await fault();
          done.push(`${round}.${kind}`);
          seen.push(`after ${round}.${kind}`, ...(await scene.nodeStates()));
          await scene.progress(3);
        }
      }
      await scene.progress(10);
      await scene.leader()?.kill("SIGTERM");
      for (const replica of replicas) if (replica.isRunning) await replica.kill("SIGTERM");
      const { runs } = scene;
      const once = judge(runs, "once", EVERY_MS);
      const least = judge(runs, "least", EVERY_MS);
      // Each replica writes these schedules as data when it starts, with its own data.
      const dataOnce = judge(runs, "data-once", EVERY_MS);
      const dataLeast = judge(runs, "data-least", EVERY_MS);
      expect(done.length).toBe(8);
      expect(once.ticks).toBeGreaterThan(50);
      const context = (wrong: readonly { readonly id: string }[]): string =>
        [
          ...wrong.flatMap(({ id }) => runs.filter((run) => run.id === id)).map((run) => JSON.stringify(run)),
          ...(wrong.length > 0 ? [...seen, ...replicas.flatMap(({ messages: told }) => JSON.stringify(told))] : []),
        ].join("\n");
      expect(once.duplicates, context(once.duplicates)).toEqual([]);
      expect(least.missed, seen.join("\n")).toEqual([]);
      expect(dataOnce.ticks).toBeGreaterThan(50);
      expect(dataOnce.duplicates, context(dataOnce.duplicates)).toEqual([]);
      expect(dataLeast.missed, seen.join("\n")).toEqual([]);
      // If a leader dies between the claim of a tick and its handler, the tick is lost, which at most once permits.
      expect(once.missed.length).toBeLessThanOrEqual(faults.length * 3);
      // With at least once, the next leader runs the tick again with the same ID, and reports this.
      const { repeated, late } = attemptsOf(runs, "least");
      expect(repeated, context(repeated)).toEqual([]);
      // A leader that freezes between the last check of the term and the note of a run writes the note when it resumes,
      // for one tick.
      expect(new Set(late.map(({ term }) => term)).size, context(late)).toBe(late.length);
    },
  );

  it("runs a tick again that its leader started and did not finish, with the same ID", async ({ expect }) => {
    await using scene = await startScene();
    const first = scene.start(400);
    const slow = (event: Run["event"]): Run | undefined =>
      scene.runs.find((run) => run.schedule === "slow" && run.event === event);
    await expect.poll(() => slow("start"), { timeout: 30_000 }).toBeDefined();
    const begun = slow("start");
    await first.kill();
    expect(slow("end")).toBeUndefined();
    scene.start(400);
    const again = (): readonly Run[] => scene.runs.filter((run) => run.id === begun?.id);
    await expect.poll(() => again().filter((run) => run.event === "end").length, { timeout: 30_000 }).toBe(1);
    expect(again().map((run) => [run.event, run.attempt])).toEqual([
      ["start", 1],
      ["start", 2],
      ["end", 2],
    ]);
  });
});

/**
 * Returns attempts of a schedule's ticks that were made twice, and attempts that were noted after a later attempt of
 * their tick.
 */
function attemptsOf(
  all: readonly Run[],
  schedule: string,
): { readonly repeated: readonly Run[]; readonly late: readonly Run[] } {
  const runs = all.filter((run) => run.schedule === schedule && run.event === "start");
  const before = (run: Run): readonly Run[] => runs.slice(0, runs.indexOf(run)).filter(({ id }) => id === run.id);
  return {
    repeated: runs.filter((run) => before(run).some(({ attempt }) => attempt === run.attempt)),
    late: runs.filter((run) => before(run).some(({ attempt }) => attempt > run.attempt)),
  };
}

function lastTerm(replica: Child): number {
  return Math.max(0, ...messages(replica, "elected").map((message) => message.term));
}

function messages(
  replica: Child,
  type: "elected" | "ended",
): readonly { readonly type: string; readonly term: number }[] {
  return (replica.messages as { readonly type: string; readonly term: number }[]).filter(
    (message) => message.type === type,
  );
}
