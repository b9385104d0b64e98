/** Overlap, timeouts, slots, and the cost of many schedules. */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type SchedulerOptions, type Tick } from "@x/leader/scheduler";
import { type Clock, type Redlock, RedlockClosedError, type RedlockOptions, systemClock } from "@x/redlock-core";
import { systemRandom } from "@x/redlock-core/kit";
import { type RedisServer, until } from "@x/test-support";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { SkipReason } from "../../src/scheduler/events.ts";
import { untilAborted } from "../support/lab.ts";
import { LEASE, type Nodes, startNodes } from "../support/redis.ts";

/** A clock whose monotonic time passes `speed` times faster than the machine's. Its time of day does not. */
const clockOf = (speed: number): Clock => ({
  ...systemClock,
  monotonicMs: () => systemClock.monotonicMs() * speed,
  suspendedMs: () => 0,
  schedule: (afterMs, run, options) => systemClock.schedule(afterMs / speed, run, options),
});

const LONG_LEASE = { leaseDuration: 20_000, renewDeadline: 15_000, retryPeriod: 1_000 } as const;

describe("schedules", () => {
  let nodes: Nodes;
  const ends: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    nodes = await startNodes(3);
  });
  afterEach(async () => {
    await Promise.all(ends.splice(0).map((end) => end()));
  });
  afterAll(async () => {
    await nodes[Symbol.asyncDispose]();
  });

  function scheduler(
    name: string,
    options: Partial<SchedulerOptions> = {},
    election = new LeaderElection(patient(), { name, ...LONG_LEASE }),
  ): LeaderScheduler {
    const own = new LeaderScheduler({ election, drainTimeout: 2_000, ...options });
    ends.push(async () => {
      await own.stop();
      await election.stop({ drainTimeout: 0 });
    });
    return own;
  }

  /** Even on a slow machine no term ends by itself, and no request times out. */
  function patient(options: RedlockOptions = {}): Redlock {
    return nodes.redlock({ ...options, nodeTimeout: 5_000, ttl: 20_000, maxTtl: 20_000 });
  }

  /** A handler that ends when released, or when its signal aborts, and records its ticks. */
  function slow(): {
    handler: (tick: Tick) => Promise<void>;
    ticks: Tick[];
    most: () => number;
    release: () => void;
    aborted: unknown[];
  } {
    const ticks: Tick[] = [];
    const aborted: unknown[] = [];
    const waiting = new Set<() => void>();
    let running = 0;
    let most = 0;
    return {
      ticks,
      aborted,
      most: () => most,
      release: () => {
        for (const end of waiting) end();
      },
      async handler(tick) {
        ticks.push(tick);
        running += 1;
        most = Math.max(most, running);
        await new Promise<void>((resolve) => {
          waiting.add(resolve);
          tick.signal.addEventListener("abort", () => {
            aborted.push(tick.signal.reason);
            resolve();
          });
        });
        running -= 1;
      },
    };
  }

  /** Returns the times of the skipped ticks, by reason. */
  function skips(own: LeaderScheduler): Record<SkipReason, number[]> {
    const skipped = { overlap: [], paused: [], attempts: [], removed: [], expired: [], "term-over": [] } as Record<
      SkipReason,
      number[]
    >;
    own.on("tickSkipped", ({ reason, scheduledAt }) => skipped[reason].push(scheduledAt.getTime()));
    return skipped;
  }

  /**
   * A scheduler with one schedule. Once the scheduler leads, a tick runs until it is released, and the next tick waits.
   */
  function buffering(name: string) {
    const options = { overlap: "bufferOne", delivery: "at-least-once" } as const;
    const election = new LeaderElection(patient(), { name, ...LONG_LEASE });
    const first = new LeaderScheduler({ election });
    const skipped = skips(first);
    const own = slow();
    first.every("s", 100, own.handler, options);
    return { ...own, election, first, skipped, options };
  }

  it("skip ticks while one runs, with overlap skip", async () => {
    const own = scheduler("skip");
    const { handler, ticks, release } = slow();
    const skipped: string[] = [];
    own.on("tickSkipped", ({ reason }) => skipped.push(reason));
    own.every("s", 100, handler);
    own.start();
    await expect.poll(() => skipped.length).toBeGreaterThan(3);
    expect([ticks.length, new Set(skipped)]).toEqual([1, new Set(["overlap"])]);
    release();
    await expect.poll(() => ticks.length).toBe(2);
    release();
  });

  it("keep one tick waiting, with overlap bufferOne", async () => {
    const own = scheduler("buffer");
    const { handler, ticks, release, most } = slow();
    const skipped = skips(own);
    own.every("s", 100, handler, { overlap: "bufferOne" });
    own.start();
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(3);
    expect(ticks.length).toBe(1);
    const firstSkippedMs = skipped.overlap[0];
    release();
    await expect.poll(() => ticks.length).toBe(2);
    expect(ticks[1]?.scheduledAt.getTime()).toBeGreaterThan(ticks[0]?.scheduledAt.getTime() ?? Infinity);
    expect(ticks[1]?.scheduledAt.getTime()).toBeLessThan(firstSkippedMs ?? 0);
    expect(most()).toBe(1);
    release();
  });

  it("abort the running tick, with overlap cancelOther", async () => {
    const own = scheduler("cancel");
    const { handler, ticks, aborted, most } = slow();
    own.every("s", 150, handler, { overlap: "cancelOther" });
    own.start();
    await expect.poll(() => ticks.length).toBeGreaterThan(3);
    expect(most()).toBe(1);
    expect(aborted[0]).toMatchObject({ name: "AbortError", message: 'a later tick of "s" is due' });
  });

  it("skip a tick that waits for a slot when a later tick is due, with overlap cancelOther", async () => {
    const own = scheduler("waiting", { concurrency: 1 });
    const hog = slow();
    const { handler, ticks } = slow();
    const skipped = skips(own);
    own.every("hog", 3_600_000, hog.handler);
    own.start();
    await own.trigger("hog");
    await expect.poll(() => hog.ticks.length).toBe(1);
    own.every("s", 100, handler, { overlap: "cancelOther" });
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(2);
    const waitedMs = skipped.overlap.at(-1);
    hog.release();
    await expect.poll(() => ticks.length).toBeGreaterThan(0);
    expect(ticks[0]?.scheduledAt.getTime()).toBeGreaterThan(waitedMs ?? 0);
  });

  it("run side by side up to the concurrency, with overlap allowAll", async () => {
    const own = scheduler("places", { concurrency: 3 });
    const { handler, ticks, most, release } = slow();
    let missed = 0;
    own.on("ticksMissed", ({ count }) => (missed += count));
    own.every("s", 50, handler, { overlap: "allowAll" });
    own.start();
    await expect.poll(() => ticks.length).toBe(3);
    const before = ticks.length;
    const timer = setInterval(release, 50);
    await expect.poll(() => ticks.length).toBeGreaterThan(before + 8);
    clearInterval(timer);
    expect(most()).toBe(3);
    const times = ticks.map((tick) => tick.scheduledAt.getTime());
    expect(times).toEqual([...new Set(times)].toSorted((a, b) => a - b));
    // A step that took longer than a period, on a loaded machine, reports all but the newest tick of that time as missed.
    const passed = ((times.at(-1) ?? 0) - (times[0] ?? 0)) / 50 + 1;
    expect(passed - times.length).toBeLessThanOrEqual(missed);
    release();
  });

  it("run none of the waiting ticks when they are paused", async () => {
    const own = scheduler("paused");
    const { handler, ticks, release } = slow();
    const skipped = skips(own);
    own.every("s", 100, handler, { overlap: "bufferOne" });
    own.start();
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(0);
    const waitingMs = (ticks[0]?.scheduledAt.getTime() ?? 0) + 100;
    await own.pause("s");
    await expect.poll(() => skipped.paused).toContain(waitingMs);
    release();
    await own.resume("s");
    await expect.poll(() => ticks.length).toBe(2);
    expect(ticks[1]?.scheduledAt.getTime()).toBeGreaterThan(Math.max(...skipped.paused));
    release();
  });

  it("abort a tick after its maxRunTime, and report the error that it rejects with", async () => {
    const own = scheduler("max-run-time");
    const errors: unknown[] = [];
    own.on("tickFailed", ({ error }) => errors.push(error));
    own.every(
      "s",
      100,
      (tick) =>
        new Promise((_, reject) => {
          tick.signal.addEventListener("abort", () => reject(tick.signal.reason as Error));
        }),
      { maxRunTime: 50 },
    );
    own.start();
    await expect.poll(() => errors.length).toBeGreaterThan(1);
    expect(errors[0]).toMatchObject({ name: "TimeoutError" });
  });

  it("continue when a handler throws, and start and end at startAt and endAt", async () => {
    const own = scheduler("bounds");
    const from = Math.ceil(Date.now() / 100) * 100 + 500;
    const ticks: Tick[] = [];
    const errors: unknown[] = [];
    own.on("tickFailed", ({ error }) => errors.push(error));
    own.every(
      "s",
      100,
      (tick) => {
        ticks.push(tick);
        throw new Error("no");
      },
      { startAt: new Date(from), endAt: new Date(from + 300), catchup: "all" },
    );
    own.start();
    await expect.poll(() => errors.length).toBe(4);
    expect(ticks.map((tick) => tick.scheduledAt.getTime() - from)).toEqual([0, 100, 200, 300]);
    expect((await own.list())[0]).toMatchObject({ next: null, last: new Date(from + 300) });
  });

  it("end with stop() in a custom term, which continues", async () => {
    const election = new LeaderElection(patient(), { name: "beside", ...LONG_LEASE });
    const [own, other] = [new LeaderScheduler({ election }), new LeaderScheduler({ election, keyPrefix: "other" })];
    let [ticks, others] = [0, 0];
    own.every("s", 50, () => (ticks += 1));
    other.every("s", 50, () => (others += 1));
    const running = election.run(async (term) => {
      await Promise.all([own.lead(term), other.lead(term)]);
      await untilAborted(term);
    });
    await expect.poll(() => ticks).toBeGreaterThan(2);
    await own.stop();
    const [stopped, before] = [ticks, others];
    await expect.poll(() => others).toBeGreaterThan(before + 5);
    expect([ticks, election.isLeader()]).toEqual([stopped, true]);
    await other.stop();
    await election.stop();
    await running;
  });

  it("are led by one scheduler in a term until it has ended, unless each scheduler has its own keyPrefix", async () => {
    const election = new LeaderElection(patient(), { name: "two", ...LONG_LEASE });
    const ran = new Set<LeaderScheduler>();
    const own = (keyPrefix?: string): LeaderScheduler => {
      const made = new LeaderScheduler({ election, keyPrefix });
      made.every("s", 50, () => ran.add(made));
      return made;
    };
    const [first, second, third] = [own(), own(), own("third")];
    const term = await election.campaign();
    const leading = [first.lead(term), third.lead(term)];
    await expect(second.lead(term)).rejects.toThrow(
      new RangeError("term must be led by one scheduler at a time with this keyPrefix, got a second one"),
    );
    await expect.poll(() => ran).toEqual(new Set([first, third]));
    await first.stop();
    leading.push(second.lead(term));
    await expect.poll(() => ran.has(second)).toBe(true);
    await Promise.all([second.stop(), third.stop()]);
    await Promise.all(leading);
    await term.resign();
    await election.stop();
  });

  it("start no waiting tick once they are stopped", async () => {
    const own = scheduler("stop");
    const { handler, ticks } = slow();
    const skipped = skips(own);
    own.every("s", 100, handler, { overlap: "bufferOne" });
    own.start();
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(0);
    await own.stop();
    expect(ticks.length).toBe(1);
    expect(skipped["term-over"]).toEqual([(ticks[0]?.scheduledAt.getTime() ?? 0) + 100]);
  });

  it("leave a waiting at-least-once tick to the next leader, even in a term that continues after stop()", async () => {
    const name = "left";
    const { election, first, skipped, options, handler, ticks, release } = buffering(name);
    const running = election.run(async (term) => {
      await first.lead(term);
      await untilAborted(term);
    });
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(0);
    const stopped = first.stop();
    release();
    await stopped;
    expect([ticks.length, ticks[0]?.signal.aborted, skipped["term-over"]]).toEqual([1, false, []]);
    await election.stop();
    await running;
    const second = scheduler(name);
    second.every("s", 100, handler, options);
    second.start();
    await expect.poll(() => ticks.length).toBeGreaterThan(1);
    expect(ticks[1]).toMatchObject({
      scheduledAt: new Date((ticks[0]?.scheduledAt.getTime() ?? 0) + 100),
      attempt: 1,
    });
    release();
  });

  it("leave a waiting trigger to the next leader", async () => {
    const name = "triggered";
    const { handler, ticks, release } = slow();
    const first = scheduler(name);
    const skipped = skips(first);
    first.every("s", 86_400_000, handler);
    first.start();
    await first.trigger("s");
    await expect.poll(() => ticks.length).toBe(1);
    await first.trigger("s");
    const requests = async (): Promise<unknown> =>
      await Promise.all(nodes.servers.map((server) => server.call("HLEN", `{leader:${name}}:mailbox`)));
    await expect.poll(requests, { timeout: 10_000 }).toEqual([0, 0, 0]);
    await first.stop();
    expect([ticks.length, skipped["term-over"]]).toEqual([1, []]);
    const second = scheduler(name);
    second.every("s", 86_400_000, handler);
    second.start();
    await expect.poll(() => ticks.length).toBe(2);
    await expect.poll(requests, { timeout: 10_000 }).toEqual([0, 0, 0]);
    expect(new Set(ticks.map(({ id }) => id)).size).toBe(2);
    release();
  });

  it("run once for each trigger, even if the Redlocks of replicas draw the same random numbers", async () => {
    const random = { ...systemRandom, fraction: () => 0 };
    const [one, two] = [1, 2].map(() =>
      scheduler("constant", {}, new LeaderElection(patient({ random }), { name: "constant", ...LONG_LEASE })),
    );
    let ticks = 0;
    for (const own of [one, two]) own?.every("s", 86_400_000, () => (ticks += 1));
    await one?.trigger("s");
    // The two triggers differ only in their time.
    const firstMs = Date.now();
    await until(() => Date.now() > firstMs);
    await two?.trigger("s");
    one?.start();
    await expect.poll(() => ticks).toBe(2);
  });

  it("count no attempt for a waiting tick if the nodes are silent until the term is lost", async () => {
    const name = "silent";
    const own = scheduler(name, {}, new LeaderElection(nodes.redlock(), { name, ...LEASE }));
    const { handler, ticks, release } = slow();
    const skipped = skips(own);
    own.every("s", 100, handler, { overlap: "bufferOne", delivery: "at-least-once" });
    own.start();
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(0);
    const silent = nodes.servers.slice(1);
    for (const server of silent) server.freeze();
    await expect.poll(() => ticks[0]?.signal.aborted).toBe(true);
    for (const server of silent) server.thaw();
    const waited = (ticks[0]?.scheduledAt.getTime() ?? 0) + 100;
    const again = (): Tick | undefined => ticks.find((tick) => tick.scheduledAt.getTime() === waited);
    await expect
      .poll(() => {
        release();
        return again()?.attempt;
      })
      .toBe(1);
  });

  it("leave a waiting tick through a scheduler that takes over in the same term and receives schedules later", async () => {
    const name = "reload";
    const { election, first, skipped, ticks, release } = buffering(name);
    const second = new LeaderScheduler({ election });
    let other = 0;
    const steps = async (): Promise<number[]> => {
      const read = nodes.servers.map((server) => server.call("HGET", `{leader:${name}}:register`, ":step"));
      return (await Promise.all(read)).map(Number);
    };
    const running = election.run(async (term) => {
      await first.lead(term);
      const last = Math.max(...(await steps()));
      const leading = second.lead(term);
      // The leader has taken over when the nodes have a step of the leader.
      await until(async () => Math.min(...(await steps())) > last);
      second.every("other", 100, () => (other += 1));
      await leading;
    });
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(0);
    const stopped = first.stop();
    release();
    await stopped;
    await expect.poll(() => other).toBeGreaterThan(5);
    const left = `r:s@${(ticks[0]?.scheduledAt.getTime() ?? 0) + 100}`;
    for (const server of nodes.servers) {
      const notes = async (): Promise<string[]> =>
        ((await server.call("HKEYS", `{leader:${name}}:register`)) as string[]).filter((key) => key.startsWith("r:"));
      await expect.poll(notes).toEqual([left]);
    }
    await second.stop();
    await election.stop();
    await running;
  });

  it("delay no other schedule when their calendar throws", async () => {
    const own = scheduler("broken");
    let ticks = 0;
    let asked = 0;
    const errors: unknown[] = [];
    own.on("error", (error) => errors.push(error));
    own.every("good", 50, () => (ticks += 1));
    own.add(
      "bad",
      (after) => {
        asked += 1;
        if (asked > 3) throw new Error("no calendar");
        return new Date(after.getTime() + 50);
      },
      () => undefined,
    );
    expect(() =>
      own.add(
        "worse",
        () => undefined as unknown as Date,
        () => undefined,
      ),
    ).toThrow(/must be null or a Date/);
    own.start();
    // A slow machine may lose a term in the meantime, which is also reported as an error.
    const broken = (): unknown[] => errors.filter((error) => String(error).includes("no calendar"));
    await expect.poll(() => broken().length).toBe(1);
    const before = ticks;
    await expect.poll(() => ticks).toBeGreaterThan(before + 5);
    expect(broken().length).toBe(1);
    expect((await own.list()).map((info) => [info.name, info.next === null])).toEqual([
      ["good", false],
      ["bad", true],
    ]);
  });

  it("are not started next to another run of the election", async () => {
    const election = new LeaderElection(patient(), { name: "twice", ...LONG_LEASE });
    const running = election.run(() => undefined);
    const own = new LeaderScheduler({ election });
    expect(() => own.start()).toThrow(/already takes part \(running\)/);
    await election.stop();
    await running;
    expect(() => own.start()).toThrow(/stopped/);
  });

  it("are started again, or refused, when their run has ended", async () => {
    const stopped = new LeaderElection(patient(), { name: "over", ...LONG_LEASE });
    const refused = new LeaderScheduler({ election: stopped });
    refused.start();
    refused.start();
    await stopped.stop();
    await expect.poll(() => stopped.health().running).toBe(false);
    expect(() => refused.start()).toThrow(/stopped/);
    const redlock = nodes.redlock();
    const election = new LeaderElection(redlock, { name: "over", ...LEASE });
    const own = new LeaderScheduler({ election });
    const errors: unknown[] = [];
    own.on("error", (error) => errors.push(error));
    await redlock.close();
    own.start();
    await expect.poll(() => errors.length).toBe(1);
    own.start();
    await expect.poll(() => errors).toEqual([expect.any(RedlockClosedError), expect.any(RedlockClosedError)]);
    await election.stop();
  });

  it("may be added and removed while they run", async () => {
    const own = scheduler("change");
    const ticks: string[] = [];
    own.start();
    const a = own.every("a", 50, () => ticks.push("a"));
    await expect.poll(() => ticks.filter((each) => each === "a").length).toBeGreaterThan(2);
    own.every("b", 50, () => ticks.push("b"));
    await expect.poll(() => ticks.filter((each) => each === "b").length).toBeGreaterThan(2);
    a.remove();
    const before = ticks.filter((each) => each === "a").length;
    await expect.poll(() => ticks.filter((each) => each === "b").length).toBeGreaterThan(10);
    expect(ticks.filter((each) => each === "a").length - before).toBeLessThanOrEqual(1);
  });

  it("start no waiting tick once they are removed", async () => {
    const own = scheduler("remove");
    const { handler, ticks, release } = slow();
    const skipped = skips(own);
    const removed = own.every("s", 100, handler, { overlap: "bufferOne" });
    own.start();
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(0);
    removed.remove();
    await expect.poll(() => skipped.removed.length).toBe(1);
    expect(skipped.removed[0]).toBeGreaterThan(ticks[0]?.scheduledAt.getTime() ?? Number.POSITIVE_INFINITY);
    release();
    await own.stop();
    expect(ticks.length).toBe(1);
  });

  it("take account of running ticks when they are added again", async () => {
    const own = scheduler("again");
    const { handler, ticks, release, most } = slow();
    const skipped = skips(own);
    const removed = own.every("s", 100, handler);
    own.start();
    await expect.poll(() => ticks.length).toBe(1);
    removed.remove();
    const again = own.every("s", 100, handler);
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(1);
    expect((await own.list())[0]?.running).toBe(1);
    again.remove();
    own.every("s", 100, handler, { overlap: "bufferOne" });
    const before = skipped.overlap.length;
    await expect.poll(() => skipped.overlap.length).toBeGreaterThan(before);
    release();
    await expect.poll(() => ticks.length).toBe(2);
    expect(most()).toBe(1);
    release();
  });

  it("are restored on nodes that lost their data in turn, including rare schedules and schedules that the leader lacks", async () => {
    const key = "{leader:foreign}:register";
    // Nodes are looked at every few seconds.
    const redlock = patient({ clock: clockOf(5) });
    const [other, leader] = [1, 2].map(() =>
      scheduler("foreign", {}, new LeaderElection(redlock, { name: "foreign", ...LONG_LEASE })),
    ) as [LeaderScheduler, LeaderScheduler];
    const { handler, ticks } = slow();
    other.every("theirs", 3_600_000, handler);
    leader.every("s", 3_600_000, handler);
    // The state that an earlier leader has left.
    for (const server of nodes.servers) {
      const run = /run_id:(\w+)/.exec(String(await server.call("INFO", "server")))?.[1] ?? "";
      const version = [":promised", "1", ":term", "1", ":step", "1", ":run", run];
      await server.call("HSET", key, ...version, "theirs", "1000 500 3", "r:theirs@1000", "2");
    }
    leader.start();
    await other.trigger("theirs");
    await leader.trigger("s");
    await expect.poll(() => ticks.length).toBe(1);
    await other.pause("theirs");
    const state = async (server: RedisServer): Promise<Map<string, string>> => {
      const list = (await server.call("HGETALL", key)) as string[];
      const pairs = list.flatMap((field, at) =>
        at % 2 === 0 && !field.startsWith(":") ? [[field, list[at + 1] ?? ""] as const] : [],
      );
      return new Map(pairs.toSorted(([a], [b]) => (a < b ? -1 : 1)));
    };
    const [first] = nodes.servers;
    if (first === undefined) throw new Error("no server");
    await expect.poll(async () => (await state(first)).get("p:theirs"), { timeout: 10_000 }).toMatch(/^\d+ 1 0$/);
    const stored = await state(first);
    expect([...stored]).toEqual([
      ["p:theirs", expect.stringMatching(/^\d+ 1 0$/)],
      ["r:theirs@1000", "2"],
      ["s", expect.stringMatching(/^\d+ 0 0$/)],
      ...[...stored].slice(3, 5),
      ["theirs", "1000 500 3"],
    ]);
    expect([...stored.values()].slice(3, 5).toSorted((a, b) => a.localeCompare(b))).toEqual(
      expect.arrayContaining([expect.stringMatching(/^\d+ 1 s$/), expect.stringMatching(/^\d+ 0 theirs$/)]),
    );
    for (const server of nodes.servers) {
      await server.call("DEL", key);
      await expect.poll(() => state(server), { timeout: 15_000 }).toEqual(stored);
    }
  });

  it("all run each second, a thousand of them", async () => {
    const own = scheduler("thousand", {}, new LeaderElection(patient(), { name: "thousand", ...LONG_LEASE }));
    const ticks = new Map<number, number>();
    const begun = new Set<string>();
    for (let index = 0; index < 1_000; index += 1) {
      own.cron(
        `s${index}`,
        "* * * * * *",
        (tick) => {
          const at = tick.scheduledAt.getTime();
          ticks.set(at, (ticks.get(at) ?? 0) + 1);
          begun.add(tick.schedule);
        },
        { catchup: "all", overlap: "allowAll" },
      );
    }
    own.start();
    // While the schedules are loaded, a second may end in which some schedules have no tick. From its first tick on, no
    // schedule skips a tick.
    await expect.poll(() => begun.size, { timeout: 60_000 }).toBe(1_000);
    const from = ticks.size;
    const complete = (): unknown[] => [...ticks.values()].slice(from, from + 3);
    await expect.poll(complete, { timeout: 60_000 }).toEqual([1_000, 1_000, 1_000]);
  });
});
