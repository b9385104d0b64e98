/** A real Prometheus, if the machine has one. See `isMissing`. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isMissing, reservePort, temporaryFolder } from "@x/test-support";
import { expect } from "vitest";
import type { Panel, Series } from "./dashboard-svg.ts";

export interface Prometheus extends AsyncDisposable {
  /** Returns the number of series in the answer to the query of a panel or an alert, without the alert's threshold. */
  readonly count: (query: string) => Promise<number>;
  /** Returns the number of series for which an alert is raised. */
  readonly raised: (alert: string) => Promise<number>;
  /** Returns the series that a panel shows for the time from `fromS` to `toS`. */
  readonly seriesOf: (panel: Panel, fromS: number, toS: number) => Promise<readonly Series[]>;
}

interface Answered {
  readonly metric: Readonly<Record<string, string>>;
  readonly values?: readonly (readonly [atS: number, value: string])[];
}

export function isWithoutPrometheus(): boolean {
  return isMissing("prometheus", spawnSync("prometheus", ["--version"]).status === 0, "queries in Prometheus");
}

/** Starts a Prometheus that scrapes `target` twice a second. */
export async function startPrometheus(target: string): Promise<Prometheus> {
  const folder = mkdtempSync(join(temporaryFolder(), "prometheus-"));
  const config = join(folder, "prometheus.yml");
  const scraped = `{ job_name: x, scrape_interval: 500ms, scrape_timeout: 500ms, static_configs: [{ targets: ["${target}"] }] }`;
  writeFileSync(config, `scrape_configs:\n  - ${scraped}\n`);
  const reserved = await reservePort();
  const { port } = reserved;
  const flags = [`--config.file=${config}`, `--storage.tsdb.path=${folder}/data`, "--log.level=error"];
  const child = spawn("prometheus", [...flags, `--web.listen-address=127.0.0.1:${port}`], { stdio: "ignore" });
  const exited = once(child, "exit");
  const ask = async (path: string, about: Readonly<Record<string, string>>): Promise<readonly Answered[]> => {
    const url = `http://127.0.0.1:${port}/api/v1/${path}?${new URLSearchParams(about).toString()}`;
    const answer = (await (await fetch(url, { headers: { connection: "close" } })).json()) as {
      readonly status: string;
      readonly error?: string;
      readonly data?: { readonly result: readonly Answered[] };
    };
    if (answer.status !== "success") throw new Error(`${about["query"]}: ${answer.error}`);
    return answer.data?.result ?? [];
  };
  const count = async (query: string): Promise<number> => (await ask("query", { query })).length;
  await expect.poll(() => count("up").catch(() => 0), { timeout: 30_000 }).toBe(1);
  return {
    count: (query) => count(query.replaceAll("$__rate_interval", "1m").replace(/ [<>] [\d.]+$/, "")),
    raised: count,
    async seriesOf({ targets = [] }, fromS, toS) {
      const step = String(Math.max(0.5, (toS - fromS) / 120));
      const answers = await Promise.all(
        targets.map(async ({ expr, legendFormat }) => {
          const query = expr.replaceAll("$__rate_interval", "10s");
          const found = await ask("query_range", { query, start: String(fromS), end: String(toS), step });
          return found.map(({ metric, values = [] }) => ({
            legend: legendFormat.replaceAll(/\{\{(\w+)\}\}/g, (_, label: string) => metric[label] ?? ""),
            points: values
              .map(([atS, value]) => [atS, Number(value)] as const)
              .filter(([, value]) => Number.isFinite(value)),
          }));
        }),
      );
      return answers.flat();
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
      reserved[Symbol.dispose]();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
