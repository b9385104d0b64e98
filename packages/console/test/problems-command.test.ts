import { runConsole } from "@x/console";
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { startRedisNodes } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { expect, it, onTestFinished } from "vitest";
import type { ProblemView } from "../src/page/state.ts";

/** Starts a node that has nothing to criticize, and returns its address. */
async function startNode(): Promise<string> {
  const [server] = await startRedisNodes(1, { args: ["--appendonly", "yes"] });
  onTestFinished(() => server?.stop());
  return server?.url ?? "";
}

async function run(url: string, ...args: readonly string[]): Promise<{ readonly code: number; readonly text: string }> {
  let text = "";
  const code = await runConsole(["problems", ...args], {
    isInteractive: false,
    env: { REDIS_URL: url },
    signal: new AbortController().signal,
    write: (written) => void (text += written),
    writeError: () => undefined,
    confirm: () => Promise.resolve(false),
  });
  return { code, text };
}

it("names the problems with their next steps, and is good once they are solved", async () => {
  const url = await startNode();
  const connection = { url, maxRetriesPerRequest: null };
  const queue = new Queue("exports", { connection });
  onTestFinished(() => queue.close());
  expect(await run(url)).toEqual({ code: 0, text: "All well.\n" });
  await queue.add("export", { account: "42" });
  const { code, text } = await run(url);
  expect(code).toBe(1);
  expect(text).toContain("critical");
  expect(text).toContain("Queue exports has no worker");
  expect(text).toContain("npx @x/console keys policy exports");
  const json = JSON.parse((await run(url, "--json")).text) as readonly ProblemView[];
  expect(json).toMatchObject([{ code: "NO_WORKER", severity: "critical", place: { queue: "exports" } }]);
  expect(await run(url, "--queue", "other", "--json")).toMatchObject({ code: 0 });

  const worker = new ExclusiveWorker("exports", () => Promise.resolve(), { connection, key: "account" });
  onTestFinished(() => worker.close());
  await expect.poll(async () => (await run(url)).code, { timeout: 20_000 }).toBe(0);
});

it("finds an election whose leader is gone", async () => {
  const url = await startNode();
  const redlock = new Redlock(url, { quarantine: false });
  onTestFinished(() => redlock.close());
  const election = new LeaderElection(redlock, { name: "billing", leaseDuration: 1_500, renewDeadline: 1_000 });
  onTestFinished(() => election.stop({ drainTimeout: 0 }));
  await election.campaign();
  expect((await run(url)).text).not.toContain("no leader");
  await redlock.close();
  await expect
    .poll(async () => (await run(url)).text, { timeout: 20_000, interval: 500 })
    .toContain("Election billing has no leader");
});
