import { LeaderElection } from "@x/leader";
import { spawnChild } from "@x/test-support";
import { expect, it } from "vitest";
import { LEASE, startNodes } from "./support/redis.ts";

it.each(["main", "worker"])(
  "a process lives while it waits and until its calls have answered, and not longer, with renewal on %s",
  async (renewal) => {
    await using nodes = await startNodes(1);
    const [path = ""] = nodes.paths;
    await using election = new LeaderElection(nodes.redlock(), { name: "once", ...LEASE });
    const term = await election.campaign();
    await using child = spawnChild(new URL("support/once.ts", import.meta.url), {
      args: [path, renewal],
      env: { LOCK_PATHS: path },
      execArgv: ["--import", new URL("support/threads.mjs", import.meta.url).href],
    });
    await expect.poll(() => nodes.servers[0]?.call("EXISTS", "{leader:once}:waiters"), { timeout: 20_000 }).toBe(1);
    const since = Date.now();
    await expect.poll(() => Date.now() - since, { timeout: 10_000 }).toBeGreaterThan(2 * LEASE.leaseDuration);
    expect(child.isRunning).toBe(true);
    await term.resign();
    await expect.poll(async () => (await election.leader())?.term ?? 0, { timeout: 10_000 }).toBeGreaterThan(term.term);
    const leads = Date.now();
    await expect.poll(() => Date.now() - leads, { timeout: 10_000 }).toBeGreaterThan(2 * LEASE.leaseDuration);
    expect(child.isRunning).toBe(true);
    await election.requestResign();
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("led true");
  },
);

it("a process that only observes lives as long as it does", async () => {
  await using nodes = await startNodes(1);
  const [path = ""] = nodes.paths;
  await using election = new LeaderElection(nodes.redlock(), { name: "once", ...LEASE });
  const term = await election.campaign();
  await using child = spawnChild(new URL("support/observe.ts", import.meta.url), { args: [path] });
  const isSeen = (message: unknown): message is number => message === term.term;
  await child.message(isSeen);
  const since = Date.now();
  await expect.poll(() => Date.now() - since, { timeout: 10_000 }).toBeGreaterThan(2 * LEASE.leaseDuration);
  expect(child.isRunning).toBe(true);
  await term.resign();
  expect(await child.exited).toMatchObject({ code: 0 });
});
