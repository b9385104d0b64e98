import { LeaderElection } from "@x/leader";
import { type RedisServer, spawnChild, waitersOf, watchForLeaks } from "@x/test-support";
import { expect, it } from "vitest";
import { pause, untilAborted } from "./support/lab.ts";
import { connect, LEASE, startNodes } from "./support/redis.ts";

it.concurrent.for(["main", "worker"])(
  "a process stays alive while it waits for its calls and no longer, with renewal on %s",
  async (renewal, { expect }) => {
    await using nodes = await startNodes(1);
    const [path = ""] = nodes.paths;
    await using election = new LeaderElection(nodes.redlock(), { name: "once", ...LEASE });
    const term = await election.campaign();
    await using child = spawnChild(new URL("children/leads-once.ts", import.meta.url), {
      args: [path, renewal],
      env: { LOCK_PATHS: path },
    });
    await expect.poll(() => waitersOf(nodes.servers[0] as RedisServer, "leader:once"), { timeout: 20_000 }).toBe(1);
    // Long enough for a lease without renewal to expire.
    await pause(2 * LEASE.leaseDuration);
    expect(child.isRunning).toBe(true);
    await term.resign();
    await expect.poll(async () => (await election.leader())?.term ?? 0, { timeout: 10_000 }).toBeGreaterThan(term.term);
    // Long enough for a lease without renewal to expire.
    await pause(2 * LEASE.leaseDuration);
    expect(child.isRunning).toBe(true);
    await election.requestResign();
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("led true");
  },
);

it.concurrent("a process that only observes stays alive for as long as it observes", async ({ expect }) => {
  await using nodes = await startNodes(1);
  const [path = ""] = nodes.paths;
  await using election = new LeaderElection(nodes.redlock(), { name: "once", ...LEASE });
  const term = await election.campaign();
  await using child = spawnChild(new URL("children/observes-only.ts", import.meta.url), { args: [path] });
  const isSeen = (message: unknown): message is number => message === term.term;
  await child.message(isSeen);
  // Long enough for a lease without renewal to expire.
  await pause(2 * LEASE.leaseDuration);
  expect(child.isRunning).toBe(true);
  await term.resign();
  expect(await child.exited).toMatchObject({ code: 0 });
});

it.concurrent("a process that only requests many schedules receives them", async ({ expect }) => {
  await using nodes = await startNodes(1);
  const [path = ""] = nodes.paths;
  await using child = spawnChild(new URL("children/lists-only.ts", import.meta.url), { args: [path] });
  expect(await child.exited).toMatchObject({ code: 0 });
  expect(child.output).toContain("listed 500");
});

it.concurrent("a process whose scheduler leads in a custom term stays alive for as long as the term", async ({
  expect,
}) => {
  await using nodes = await startNodes(1);
  const [path = ""] = nodes.paths;
  await using child = spawnChild(new URL("children/ticks-only.ts", import.meta.url), { args: [path] });
  expect(await child.exited).toMatchObject({ code: 0 });
  expect(child.output).toContain("ticked 2");
});

it.concurrent("a handler that never ends does not keep a process alive whose election is stopped", async ({
  expect,
}) => {
  await using nodes = await startNodes(1);
  const [path = ""] = nodes.paths;
  await using child = spawnChild(new URL("children/stuck-tick.ts", import.meta.url), { args: [path] });
  expect(await child.exited).toMatchObject({ code: 0 });
});

it("fifty elections of a process have one leader each, and leave no timer or socket behind", async () => {
  await using nodes = await startNodes(1);
  const check = watchForLeaks();
  const redlocks = [connect(nodes.paths), connect(nodes.paths)];
  const all = redlocks.map((redlock, side) =>
    Array.from(
      { length: 50 },
      (_, index) => new LeaderElection(redlock, { name: `many-${index}`, id: `side-${side}`, ...LEASE }),
    ),
  );
  const runs = all.flat().map((election) => election.run(untilAborted));
  const [left = [], right = []] = all;
  const led = (): number => left.filter((each, index) => each.isLeader() !== right[index]?.isLeader()).length;
  await expect.poll(led, { timeout: 15_000 }).toBe(50);
  // Long enough for every lease to be renewed or lost.
  await pause(2 * LEASE.leaseDuration);
  await expect.poll(led, { timeout: 15_000 }).toBe(50);
  await Promise.all(all.flat().map((election) => election.stop()));
  await Promise.all(runs);
  await Promise.all(redlocks.map((redlock) => redlock.close()));
  await check();
});
