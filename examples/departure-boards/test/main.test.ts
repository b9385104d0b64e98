/** With `SCREENSHOTS=1` in the environment, docs/pictures/departure-boards.svg becomes the picture of the first run. */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Child, spawnChild, startRedis, startRedisNodes } from "@x/test-support";
import { expect, it, onTestFinished } from "vitest";
import { toEnvironment } from "../src/settings.ts";

const main = new URL("../src/main.ts", import.meta.url);

const documented = new URL("../../../docs/pictures/departure-boards.svg", import.meta.url);

const plain = { NO_COLOR: "1" };

function start(...args: string[]): Child {
  return spawnChild(main, { args, env: plain });
}

/** Starts the run with a temporary folder of its own; `leftovers` are the servers and folders that are still in it. */
function startApart(...args: string[]): { run: Child; leftovers: () => string[] } {
  const folder = mkdtempSync(join(tmpdir(), "run-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const run = spawnChild(main, { args, env: { ...plain, TMPDIR: folder } });
  const servers = (): string[] =>
    execFileSync("ps", ["-eo", "args"], { encoding: "utf8" })
      .split("\n")
      .filter((line) => line.includes(folder) && line.includes("redis"));
  return { run, leftovers: () => [...readdirSync(folder).filter((name) => name.startsWith("x-redis")), ...servers()] };
}

/** The report's lines by their label. */
function report(output: string): Map<string, string> {
  const lines = output.split("\n").map((line) => /^(\S.*?) {2,}(.*)$/.exec(line));
  return new Map(
    lines.flatMap((match) => (match?.[1] === undefined || match[2] === undefined ? [] : [[match[1], match[2]]])),
  );
}

it("arrives at the boards of a sequential pass through every fault, and ends with code 0", {
  timeout: 180_000,
}, async () => {
  // Slow enough that there is work left for every fault.
  const { run, leftovers } = startApart("--flights", "2000", "--pause", "60");
  await using _ = run;
  await showsIts(run);
  expect(await run.exited, run.output).toEqual({ code: 0, signal: null });
  const lines = report(run.output);
  expect(lines.get("flights processed")).toMatch(/^2,000 of 2,000 in /);
  for (const label of ["lost", "duplicates", "overlaps per airport", "out of order per airport"])
    expect(lines.get(label), label).toBe("0");
  expect(lines.get("boards as a sequential pass")).toBe("58 of 58");
  expect(Number(lines.get("stale writes refused"))).toBeGreaterThan(0);
  expect(lines.get("faults")).toMatch(
    /^lock node 3 killed, scheduler-\d killed, lock node 3 started again, worker-2 killed, worker-3 frozen$/,
  );
  expect(run.output).toMatch(/next leader after scheduler-\d was killed +\d+\.\d s\n/);
  expect(run.output).toMatch(/airports of worker-2, killed, moved on +\d+\.\d s\n/);
  expect(run.output).toMatch(/airports of worker-3, frozen, moved on +\d+\.\d s\n/);
  expect(run.output).toMatch(/\ncorrect +every board is what a sequential pass over the log gives\n$/);
  const picture = /^picture +(\S+\.svg)$/m.exec(run.output)?.[1] ?? "";
  const svg = readFileSync(picture, "utf8");
  for (const text of ["worker-1", "lock node 3 killed", "worker-3 frozen"]) expect(svg).toContain(`>${text}<`);
  if (process.env["SCREENSHOTS"] === "1") copyFileSync(picture, documented);
  await expect.poll(leftovers).toEqual([]);
});

/** The live page has the leader, airports that are waited for, and what struck. */
async function showsIts(run: Child): Promise<void> {
  const url = (): string | undefined => /live page: (http:\S+)/.exec(run.output)?.[1];
  await expect.poll(url, { timeout: 40_000 }).toBeDefined();
  const shown: { leader?: string | undefined; waiting?: number; event?: string | undefined } = {};
  await expect
    .poll(
      async () => {
        const answer = await fetch(`${url()}state`);
        const { elections, queues, events } = (await answer.json()) as PageState;
        shown.leader ??= elections[0]?.leader?.id;
        if ((queues[0]?.parked ?? 0) > 0) shown.waiting = queues[0]?.parked ?? 0;
        shown.event ??= events.find(({ text }) => text.includes("killed"))?.text;
        return shown;
      },
      { timeout: 60_000, interval: 500 },
    )
    .toMatchObject({
      leader: expect.stringMatching(/^scheduler-\d$/),
      waiting: expect.any(Number),
      event: expect.stringContaining("killed"),
    });
}

interface PageState {
  readonly elections: readonly { readonly leader?: { readonly id: string } }[];
  readonly queues: readonly { readonly parked: number }[];
  readonly events: readonly { readonly text: string }[];
}

it("shows wrong totals with plain workers, and ends with code 1", { timeout: 120_000 }, async () => {
  await using run = start("--naive", "--no-faults", "--no-page", "--flights", "2000");
  expect(await run.exited, run.output).toEqual({ code: 1, signal: null });
  expect(run.output).not.toContain("live page");
  const lines = report(run.output);
  expect(lines.get("overlaps per airport")).toMatch(/^[\d,]+ at \d+ airports/);
  expect(lines.get("boards as a sequential pass")).toMatch(/^\d+ of 58, [\d,]+ flights are missing on the others$/);
  expect(run.output).toMatch(/\nWRONG +.*boards as a sequential pass.*\n$/);
});

it("uses the servers that the environment names, kills none of them, and leaves no key on them", {
  timeout: 120_000,
}, async () => {
  await using queueNode = await startRedis();
  const lockNodes = await startRedisNodes(3);
  try {
    await using run = spawnChild(main, {
      args: ["--flights", "500"],
      env: { ...plain, REDIS_URL: queueNode.url, LOCK_REDIS_URLS: lockNodes.map((node) => node.url).join(", ") },
    });
    expect(await run.exited, run.output).toEqual({ code: 0, signal: null });
    expect(run.output).not.toContain("lock node");
    for (const node of [queueNode, ...lockNodes]) expect(await node.call("KEYS", "*departure-boards*")).toEqual([]);
  } finally {
    await Promise.all(lockNodes.map((node) => node.stop()));
  }
});

it("watches and judges replicas that run elsewhere", { timeout: 60_000 }, async () => {
  await using node = await startRedis();
  const settings = {
    prefix: "elsewhere:",
    redisUrl: node.url,
    lockRedisUrls: [node.url],
    flights: 300,
    naive: false,
    pauseMs: 1,
  };
  const replicas = ["scheduler", "worker", "worker"].map((role, index) =>
    spawnChild(new URL(`../src/${role}.ts`, import.meta.url), { env: toEnvironment(settings, `${role}-${index}`) }),
  );
  const env = { ...plain, ...toEnvironment(settings, "boards"), PAGE_PORT: "0" };
  await using run = spawnChild(main, { args: ["--attach"], env });
  const url = (): string | undefined => /live page: (http:\S+)/.exec(run.output)?.[1];
  await expect.poll(url, { timeout: 40_000 }).toBeDefined();
  // The run may be over before the page is asked.
  const page = await fetch(url() ?? "").catch(() => undefined);
  if (page !== undefined) expect(page.status).toBe(200);
  expect(await run.exited, run.output).toEqual({ code: 0, signal: null });
  expect(report(run.output).get("flights processed")).toMatch(/^300 of 300 in /);
  for (const replica of replicas)
    expect(await replica.kill("SIGTERM"), replica.output).toEqual({ code: 0, signal: null });
});

it.each([
  ["SIGINT", 130, "leads, term"],
  ["SIGTERM", 143, "worker-2 killed"],
] as const)("cleans up on %s, with code %d", { timeout: 60_000 }, async (signal, code, moment) => {
  const { run, leftovers } = startApart("--flights", "2000", "--pause", "60");
  await using _ = run;
  await expect.poll(() => run.output, { timeout: 40_000 }).toContain(moment);
  expect(leftovers().length).toBeGreaterThan(6);
  expect(await run.kill(signal)).toEqual({ code, signal: null });
  expect(run.output).toMatch(new RegExp(`\nstopped by ${signal}\n$`));
  await expect.poll(leftovers).toEqual([]);
});

it("ends with one line for a wrong option", { timeout: 30_000 }, async () => {
  await using run = start("--flights", "none");
  expect(await run.exited).toEqual({ code: 1, signal: null });
  expect(run.output).toBe("--flights must be an integer from 1 to 20000, got none\n");
});
