/** A real Prometheus. No machine must have one: without it the test that needs it is skipped, and says so. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort, temporaryFolder } from "@x/test-support";
import { expect } from "vitest";

export interface Prometheus extends AsyncDisposable {
  /** Of a query of a panel or an alert: how many series its answer has, whatever an alert compares them with. */
  readonly count: (query: string) => Promise<number>;
}

export function isWithoutPrometheus(): boolean {
  if (spawnSync("prometheus", ["--version"]).status === 0) return false;
  process.stderr.write("SKIPPED: queries in Prometheus: none on the PATH (apt-get install prometheus)\n");
  return true;
}

/** Starts one that scrapes `target` twice a second. */
export async function startPrometheus(target: string): Promise<Prometheus> {
  const folder = mkdtempSync(join(temporaryFolder(), "prometheus-"));
  const config = join(folder, "prometheus.yml");
  const scraped = `{ job_name: x, scrape_interval: 500ms, scrape_timeout: 500ms, static_configs: [{ targets: ["${target}"] }] }`;
  writeFileSync(config, `scrape_configs:\n  - ${scraped}\n`);
  const port = await freePort();
  const flags = [`--config.file=${config}`, `--storage.tsdb.path=${folder}/data`, "--log.level=error"];
  const child = spawn("prometheus", [...flags, `--web.listen-address=127.0.0.1:${port}`], { stdio: "ignore" });
  const exited = once(child, "exit");
  const ask = async (query: string): Promise<number> => {
    const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(query)}`;
    const answer = (await (await fetch(url, { headers: { connection: "close" } })).json()) as {
      readonly status: string;
      readonly error?: string;
      readonly data?: { readonly result: readonly unknown[] };
    };
    if (answer.status !== "success") throw new Error(`${query}: ${answer.error}`);
    return answer.data?.result.length ?? 0;
  };
  await expect.poll(() => ask("up").catch(() => 0), { timeout: 30_000 }).toBe(1);
  return {
    count: (query) => ask(query.replaceAll("$__rate_interval", "1m").replace(/ [<>] [\d.]+$/, "")),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
