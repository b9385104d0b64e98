/** Every query of the dashboard and of the alerts names metrics and labels that a real scrape has. */
import { readFileSync } from "node:fs";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { deferred } from "@x/redlock-core/protocol";
import { startRedis } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { expect, it } from "vitest";
import { isWithoutPrometheus, startPrometheus } from "./support/prometheus.ts";
import { connectionOf, type Sdk, startSdk } from "./support/sdk.ts";

const textOf = (file: string): string => readFileSync(new URL(`../grafana/${file}`, import.meta.url), "utf8");

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
}

function queries(): readonly string[] {
  const { panels } = JSON.parse(textOf("dashboard.json")) as { readonly panels: readonly Panel[] };
  const drawn = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const alerts = [...textOf("alerts.yml").matchAll(/^ +expr: (.+)$/gm)].map(([, expr = ""]) => expr);
  return [...drawn, ...alerts];
}

/** The metrics of a query, and the labels that it uses; a quantile's `le` is the histogram's own. */
function namesIn(query: string): { readonly metrics: readonly string[]; readonly labels: readonly string[] } {
  const grouped = [...query.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(/,\s*/));
  const filtered = [...query.matchAll(/\{([^}]*)\}/g)].flatMap(([, list = ""]) =>
    list.split(/,\s*/).map((each) => each.split(/[=!]/)[0] ?? ""),
  );
  const rest = query.replaceAll(/by \([^)]*\)/g, "").replaceAll(/\{[^}]*\}/g, "");
  return { metrics: rest.match(/\bx_\w+/g) ?? [], labels: [...grouped, ...filtered] };
}

/**
 * Has all that is told happen: locks held, waited for, refused and lost, a leader with a schedule, jobs of busy keys; at
 * the end a node is down.
 */
async function everything(look: (sdk: Sdk) => Promise<void>): Promise<void> {
  await using server = await startRedis();
  await using redlock = new Redlock(server.url);
  const connection = connectionOf(server);
  const queue = new Queue("payments", { connection });
  const held = deferred<void>();
  const worker = new ExclusiveWorker("payments", async () => await held.promise, {
    connection,
    key: "account",
    concurrency: 3,
  });
  await using sdk = await startSdk({ workers: [worker], topKeys: 3 });
  const samples = async (): Promise<readonly string[]> => [...(await sdk.scrape()).keys()];
  const untilTold = async (metric: string): Promise<void> =>
    await expect.poll(async () => (await samples()).some((sample) => sample.startsWith(metric))).toBe(true);

  const lost = await redlock.acquire("stock:1");
  await lost.extend();
  await redlock.acquire("stock:1", { timeout: 1 }).catch(() => undefined);
  await redlock.forceRelease("stock:1");
  await lost.release();
  const election = new LeaderElection(redlock, { name: "billing", leaseDuration: 1_000 });
  const scheduler = new LeaderScheduler({ election });
  scheduler.every("books", 100, () => undefined);
  scheduler.start();
  await queue.addBulk([1, 1, 2].map((account) => ({ name: "pay", data: { account } })));
  for (const metric of ["x_leader_renewal_remaining", "x_scheduler_ticks_total", "x_workers_key_waiting"])
    await untilTold(metric);
  held.resolve();
  await untilTold("x_workers_lock_hold_duration");
  await look(sdk);
  await Promise.all([scheduler.stop(), worker.close(), queue.close()]);
  await server.kill();
  await untilTold("x_lock_node_up");
  await look(sdk);
}

/** What only a fault brings. Their names are those of the sources, and their labels are not looked at. */
const RARE: ReadonlySet<string> = new Set(["x_leader_overruns_total", "x_workers_yielded_total"]);

it("draws no panel and raises no alert of a metric or a label that is not there", async () => {
  const samples: string[] = [];
  await everything(async (sdk) => void samples.push(...(await sdk.scrape()).keys()));
  const wrong = queries().flatMap((query) => {
    const { metrics, labels } = namesIn(query);
    expect(metrics, query).toHaveLength(1);
    const [metric = ""] = metrics;
    if (RARE.has(metric)) return [];
    const own = samples.filter((sample) => sample.startsWith(`${metric}{`));
    if (own.length === 0) return [`${metric} is told by nobody: ${query}`];
    return labels.filter((label) => !own[0]?.includes(`${label}="`)).map((label) => `${metric} has no ${label}`);
  });
  expect(wrong).toEqual([]);
});

it.skipIf(isWithoutPrometheus())(
  "has an answer of Prometheus itself to every query, of a panel and of an alert",
  { timeout: 120_000 },
  async () => {
    const isRare = (query: string): boolean =>
      query.includes('"missed"') || namesIn(query).metrics.some((name) => RARE.has(name));
    const isLate = (query: string): boolean => /x_lock_node_up|x_leader_terms_ended/.test(query);
    const unanswered = new Set(queries().filter((query) => !isRare(query)));
    expect(unanswered.size).toBeGreaterThan(20);
    let stage = 0;
    await everything(async (sdk) => {
      await using prometheus = await startPrometheus(sdk.target);
      for (const query of queries()) await prometheus.count(query);
      // Two scrapes make a rate. What only the end brings is asked for again then.
      const left = async (): Promise<readonly string[]> => {
        for (const query of unanswered) if ((await prometheus.count(query)) > 0) unanswered.delete(query);
        return [...unanswered].filter((query) => stage > 0 || !isLate(query));
      };
      await expect.poll(left, { timeout: 60_000, interval: 500 }).toEqual([]);
      stage += 1;
    });
    expect([...unanswered]).toEqual([]);
  },
);
