/**
 * Every query of the dashboard and of the alerts names metrics and labels of a real scrape. `SCREENSHOTS=1` draws
 * docs/pictures/dashboard.svg again, after a minute with more events.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { deferred } from "@x/redlock-core/kit";
import { type RedisServer, startRedis, temporaryFolder } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { expect, it } from "vitest";
import { dashboardSvg, type Panel } from "./support/dashboard-svg.ts";
import { isWithoutPrometheus, type Prometheus, startPrometheus } from "./support/prometheus.ts";
import { connectionOf, type Sdk, startSdk } from "./support/sdk.ts";

const textOf = (file: string): string => readFileSync(new URL(`../grafana/${file}`, import.meta.url), "utf8");

const isPicture = process.env["SCREENSHOTS"] === "1";

const { panels } = JSON.parse(textOf("dashboard.json")) as { readonly panels: readonly Panel[] };

function queries(): readonly string[] {
  const drawn = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const alerts = [...textOf("alerts.yml").matchAll(/^ +expr: (.+)$/gm)].map(([, expr = ""]) => expr);
  return [...drawn, ...alerts];
}

/**
 * Returns the metrics of a query, and the labels that the query uses. The label `le` of a quantile belongs to the
 * histogram.
 */
function namesIn(query: string): { readonly metrics: readonly string[]; readonly labels: readonly string[] } {
  const grouped = [...query.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(/,\s*/));
  const filtered = [...query.matchAll(/\{([^}]*)\}/g)].flatMap(([, list = ""]) =>
    list.split(/,\s*/).map((each) => each.split(/[=!]/)[0] ?? ""),
  );
  const rest = query.replaceAll(/by \([^)]*\)/g, "").replaceAll(/\{[^}]*\}/g, "");
  return { metrics: [...new Set(rest.match(/\bx_\w+/g))], labels: [...grouped, ...filtered] };
}

interface Scene {
  readonly server: RedisServer;
  readonly sdk: Sdk;
  readonly redlock: Redlock;
  readonly queue: ExclusiveQueue;
  readonly election: LeaderElection;
}

/**
 * For a minute, locks accounts, runs jobs of few keys, cuts connections, releases a lock by force, and lets a leader
 * resign.
 */
async function minute({ server, redlock, queue, election }: Scene): Promise<void> {
  const endMs = performance.now() + 60_000;
  const any = (count: number): number => Math.ceil(Math.random() * count);
  const again = async (act: () => Promise<unknown>): Promise<void> => {
    // A wait that ends without its lock is a part of the picture.
    while (performance.now() < endMs) await act().catch(() => undefined);
  };
  const using = (): Promise<unknown> => redlock.using(`account:${any(3)}`, () => delay(any(400)), { timeout: 500 });
  await Promise.all([
    ...Array.from({ length: 4 }, () => again(using)),
    again(() => redlock.using("report:1", ({ signal }) => delay(20_000, undefined, { signal }), { ttl: 3_000 })),
    again(async () => {
      await delay(any(600));
      await queue.add("pay", { account: any(5), ms: any(600) });
    }),
    delay(15_000).then(() => server.call("CLIENT", "KILL", "TYPE", "normal")),
    delay(30_000).then(async () => {
      await redlock.forceRelease("report:1");
      await election.requestResign();
    }),
  ]);
}

/** Draws the dashboard of the time since `fromS`. Returns the titles of panels without an answer from Prometheus. */
async function draw(prometheus: Prometheus, fromS: number): Promise<readonly string[]> {
  const toS = Date.now() / 1_000;
  const drawn = await Promise.all(
    panels.map(async (panel) => ({ ...panel, series: await prometheus.seriesOf(panel, fromS, toS) })),
  );
  const folder = isPicture ? fileURLToPath(new URL("../../../docs/pictures", import.meta.url)) : temporaryFolder();
  const svg = dashboardSvg({ title: "Coordination", panels: drawn, fromS, toS });
  writeFileSync(join(folder, "dashboard.svg"), svg);
  // Within a moment, a quantile covers no event, and its answer has no value.
  const isEmpty = ({ type, series }: (typeof drawn)[number]): boolean =>
    type !== "row" && !series.some(({ points }) => points.length > 0 || !isPicture);
  return drawn.filter(isEmpty).map(({ title }) => title);
}

/**
 * Causes all events: locks held, awaited, refused and lost, a leader with a schedule, jobs of busy keys. At the end a
 * node is down.
 */
async function everything(look: (scene: Scene) => Promise<void>): Promise<void> {
  await using server = await startRedis();
  await using redlock = new Redlock(server.url);
  const connection = connectionOf(server);
  const queue = new ExclusiveQueue("payments", { connection });
  const held = deferred<void>();
  const work = async ({
    data,
  }: {
    readonly data: { readonly account?: string; readonly ms?: number };
  }): Promise<void> => {
    await held.promise;
    if (data.ms !== undefined) await delay(data.ms);
  };
  const worker = new ExclusiveWorker("payments", work, {
    connection,
    key: "account",
    resource: "payer:",
    concurrency: 3,
  });
  await using sdk = await startSdk({ queues: [queue], topKeys: 3 });
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
  const scene = { server, sdk, redlock, queue, election };
  await look(scene);
  await Promise.all([scheduler.stop(), worker.close(), queue.close()]);
  await server.kill();
  await untilTold("x_lock_node_up");
  await look(scene);
}

/** Metrics that only a fault produces. Their names are compared with the sources, and their labels are not checked. */
const RARE: ReadonlySet<string> = new Set(["x_leader_overruns_total", "x_workers_yielded_total"]);

/** Panels that show nothing before a node is down, or without a fault. */
const SELDOM: ReadonlySet<string> = new Set(["Lock nodes up", "Terms that ended", "Jobs that went back"]);

it("uses only existing metrics and labels in panels and alerts", async () => {
  const samples: string[] = [];
  await everything(async ({ sdk }) => void samples.push(...(await sdk.scrape()).keys()));
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
  { timeout: 180_000 },
  async () => {
    const isRare = (query: string): boolean =>
      query.includes('"missed"') || namesIn(query).metrics.some((name) => RARE.has(name));
    const isLate = (query: string): boolean => /x_lock_node_up|x_leader_terms_ended/.test(query);
    const unanswered = new Set(queries().filter((query) => !isRare(query)));
    expect(unanswered.size).toBeGreaterThan(20);
    let stage = 0;
    await everything(async (scene) => {
      await using prometheus = await startPrometheus(scene.sdk.target);
      const fromS = Date.now() / 1_000;
      for (const query of queries()) await prometheus.count(query);
      // A rate needs two scrapes. At the end, the panels that only the end fills are queried again.
      const left = async (): Promise<readonly string[]> => {
        for (const query of unanswered) if ((await prometheus.count(query)) > 0) unanswered.delete(query);
        return [...unanswered].filter((query) => stage > 0 || !isLate(query));
      };
      await expect.poll(left, { timeout: 60_000, interval: 500 }).toEqual([]);
      if (stage === 0) {
        // The counter exists since its first event.
        const lost = queries().find((query) => /x_lock_lost_total.* > 0$/.test(query)) ?? "";
        expect(await prometheus.raised(lost)).toBe(1);
        if (isPicture) await minute(scene);
        const empty = await draw(prometheus, fromS);
        expect(empty.filter((title) => !SELDOM.has(title))).toEqual([]);
      }
      stage += 1;
    });
    expect([...unanswered]).toEqual([]);
  },
);
