import { channel } from "node:diagnostics_channel";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parentOf, startSdk } from "./support/sdk.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

it("draws the term of a leader with the calls of its task as children", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  const election = new LeaderElection(redlock, { name: "billing", leaseDuration: 3_000 });
  const running = election.run(async (term) => {
    sdk.tracer.startSpan("work").end();
    await expect
      .poll(async () => [...(await sdk.scrape()).keys()].some((name) => name.startsWith("x_leader_renewal_remaining")))
      .toBe(true);
    const share = (await sdk.scrape()).get('x_leader_renewal_share_sum{x_leader_election="billing"}');
    expect(share).toBeGreaterThanOrEqual(0);
    void term.resign();
  });
  await expect.poll(() => sdk.spans().some(({ name }) => name === "leader term billing")).toBe(true);
  expect(
    (await sdk.scrape()).get('x_leader_terms_ended_total{x_leader_election="billing",x_leader_reason="resigned"}'),
  ).toBe(1);
  await election.stop();
  await running;
  const spans = sdk.spans();
  const work = spans.find(({ name }) => name === "work");
  expect(work && parentOf(work, spans)).toBe("leader term billing");
  expect((await sdk.scrape()).get('x_leader_is_leader{x_leader_election="billing"}')).toBe(0);
});

it("draws each tick as a separate trace, with lateness and failure", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  const election = new LeaderElection(redlock, { name: "cron", leaseDuration: 3_000 });
  const scheduler = new LeaderScheduler({ election });
  let count = 0;
  scheduler.every("books", 100, async () => {
    count += 1;
    sdk.tracer.startSpan("query").end();
    if (count === 2) throw new Error("no paper");
  });
  scheduler.start();
  await expect.poll(() => sdk.spans().filter(({ name }) => name === "scheduler tick books").length).toBeGreaterThan(2);
  expect((await sdk.scrape()).get('x_leader_is_leader{x_leader_election="cron"}')).toBe(1);
  await scheduler.stop();
  const spans = sdk.spans();
  const ticks = spans.filter(({ name }) => name === "scheduler tick books");
  expect(ticks.every((tick) => tick.parentSpanContext === undefined)).toBe(true);
  expect(ticks[1]?.events[0]?.attributes).toMatchObject({ "exception.message": "no paper" });
  expect(ticks[0]?.attributes["x.scheduler.lateness"]).toBeGreaterThanOrEqual(0);
  const [query] = spans.filter(({ name }) => name === "query");
  expect(query && parentOf(query, spans)).toBe("scheduler tick books");
  const samples = await sdk.scrape();
  const schedule = 'x_leader_election="cron",x_scheduler_schedule="books"';
  expect(samples.get(`x_scheduler_ticks_total{${schedule},x_scheduler_outcome="failed"}`)).toBe(1);
  expect(samples.get(`x_scheduler_tick_lateness_count{${schedule}}`)).toBe(ticks.length);
});

it("counts a task that outlasts its lease once, and no task that ends with its term", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  const counted = async (name: string): Promise<number | undefined> =>
    (await sdk.scrape()).get(`x_leader_overruns_total{x_leader_election="${name}"}`);
  let end: () => void = () => undefined;
  const untilEnd = new Promise<void>((resolve) => {
    end = resolve;
  });
  const runs = ["prompt", "stubborn"].map((name) => {
    const election = new LeaderElection(redlock, { name, leaseDuration: 3_000 });
    const running = election.run(async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      if (name === "stubborn") await untilEnd;
    });
    return { name, election, running };
  });
  for (const { name } of runs) {
    await expect.poll(() => redlock.forceRelease(`leader:${name}`)).toBe(true);
  }
  await expect.poll(() => counted("stubborn"), { timeout: 10_000 }).toBe(1);
  end();
  for (const { election, running } of runs) {
    await election.stop();
    await running;
  }
  expect([await counted("prompt"), await counted("stubborn")]).toEqual([undefined, 1]);
});

it("reports the process as leader when the end of another candidate is reported late", async () => {
  await using sdk = await startSdk();
  const elected = channel("x.leader.elected");
  const ended = channel("x.leader.ended");
  const leads = async (): Promise<number | undefined> =>
    (await sdk.scrape()).get('x_leader_is_leader{x_leader_election="both"}');
  elected.publish({ election: "both", candidate: "a", term: 1 });
  elected.publish({ election: "both", id: "b", term: 2 });
  ended.publish({ election: "both", candidate: "a", term: 1, reason: "forced" });
  expect(await leads()).toBe(1);
  ended.publish({ election: "both", id: "b", term: 2, reason: "stopped" });
  expect(await leads()).toBe(0);
});
