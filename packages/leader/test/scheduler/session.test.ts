/** One term of the scheduler, against a store that the test answers for. */
import { systemClock } from "@x/redlock-core";
import { onAbort } from "@x/redlock-core/protocol";
import { beforeEach, describe, expect, it } from "vitest";
import { LeadershipLostError } from "../../src/errors.ts";
import { Emitter } from "../../src/kit/emitter.ts";
import { everyCalendar } from "../../src/scheduler/calendar.ts";
import type { Entry } from "../../src/scheduler/entry.ts";
import { SCHEDULER_EVENTS, type SchedulerEvents } from "../../src/scheduler/events.ts";
import { resolveScheduleOptions, type ScheduleOptions } from "../../src/scheduler/options.ts";
import type { NamedTick } from "../../src/scheduler/report.ts";
import { Session } from "../../src/scheduler/session.ts";
import type { Claim, Claimed, StoredState, TickStore } from "../../src/scheduler/store.ts";
import type { Tick } from "../../src/scheduler/tick.ts";
import type { LeaderTerm } from "../../src/term/term.ts";

const EMPTY: StoredState = {
  schedules: new Map(),
  pending: [],
  noted: [],
  running: new Map(),
  paused: new Map(),
  halfPaused: [],
  requests: [],
  requestIds: [],
  sawBlank: false,
  isStale: false,
};
const claimedAll = (claims: readonly Claim[]): Claimed => ({
  outcomes: claims.map(() => ({ kind: "claimed" })),
  isStale: false,
  sawBlank: false,
});

describe("a session", () => {
  let controller: AbortController;
  let isCurrent: boolean;
  let entries: Map<string, Entry>;
  let events: Emitter<SchedulerEvents>;
  let ticks: Tick[];
  let log: string[];
  beforeEach(() => {
    controller = new AbortController();
    isCurrent = true;
    events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    ticks = [];
    log = [];
    events.on("tickSkipped", ({ reason }) => log.push(`skipped: ${reason}`));
    events.on("error", (error) => log.push(String(error)));
  });

  const lose = (): void => {
    isCurrent = false;
    controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "renew-deadline" }));
  };

  function session(
    store: Partial<TickStore>,
    options: ScheduleOptions = {},
    handler?: (tick: Tick) => unknown,
  ): Session {
    const term = {
      election: "x",
      term: 5,
      fencingToken: 5,
      signal: controller.signal,
      isCurrent: () => isCurrent,
    } as unknown as LeaderTerm;
    const entry: Entry = {
      name: "s",
      calendar: everyCalendar(20, 0),
      handler: (tick) => {
        ticks.push(tick);
        return handler?.(tick);
      },
      options: resolveScheduleOptions(options, "UTC"),
    };
    entries = new Map([["s", entry]]);
    const whole = {
      read: () => Promise.resolve(EMPTY),
      claim: (_: number, claims: readonly Claim[]) => Promise.resolve(claimedAll(claims)),
      finish: () => Promise.resolve(true),
      take: () => Promise.resolve(true),
      repeatRequests: () => Promise.resolve(true),
      ...store,
    } as unknown as TickStore;
    return new Session({
      term,
      store: whole,
      clock: systemClock,
      random: () => 0,
      entries,
      concurrency: 100,
      events,
      stop: new AbortController().signal,
    });
  }

  it("does not call the handler of a tick whose claim was answered after the term was over", async () => {
    const claims: Claim[] = [];
    await session({
      claim: (_, asked) => {
        claims.push(...asked);
        if (asked[0]?.mode === "once") isCurrent = false;
        return Promise.resolve(claimedAll(asked));
      },
    }).run();
    expect(claims.map((claim) => claim.mode)).toEqual(["skip", "once"]);
    expect([ticks, log]).toEqual([[], ["skipped: term-over"]]);
  });

  it("neither claims a tick nor takes a request once it is to end", async () => {
    const asked: string[] = [];
    await session({
      read: () => Promise.resolve({ ...EMPTY, sawBlank: true, requests: [{ id: "r", name: "s", atMs: 1 }] }),
      claim: async (_, claims, isWhole) => {
        asked.push(...claims.map((claim) => claim.mode));
        if (isWhole === true) {
          // Long enough for a tick to fall due.
          await new Promise((resolve) => setTimeout(resolve, 50));
          controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "stopping" }));
        }
        return claimedAll(claims);
      },
      take: () => {
        asked.push("take");
        return Promise.resolve(true);
      },
    }).run();
    expect([asked, ticks, log]).toEqual([["skip", "skip"], [], []]);
  });

  it("tells of a request as removed whose schedule is removed while it is taken", async () => {
    const request = { id: "r", name: "s", atMs: Date.now() };
    const own = session({
      read: () => Promise.resolve({ ...EMPTY, requests: [request] }),
      take: () => {
        entries.delete("s");
        own.nudge(false);
        return Promise.resolve(true);
      },
    });
    const running = own.run();
    await expect.poll(() => log).toContain("skipped: removed");
    lose();
    await running;
    // A tick of the schedule's own may have been due in the same moment.
    expect(new Set(log)).toEqual(new Set(["skipped: removed"]));
    expect(ticks).toEqual([]);
  });

  it("takes a request again that a node still shows, and runs it once", async () => {
    const taken: string[] = [];
    const request = { id: "r", name: "s", atMs: Date.now() };
    const own = session({
      read: () =>
        Promise.resolve({ ...EMPTY, requests: taken.length > 0 ? [] : [request], requestIds: ["r", "unknown"] }),
      take: (_, ids) => {
        taken.push(...ids);
        return Promise.resolve(true);
      },
    });
    const running = own.run();
    const runs = (): number => ticks.filter(({ id }) => id.endsWith("-r")).length;
    await expect.poll(runs).toBe(1);
    own.nudge(true);
    await expect.poll(() => taken).toEqual(["r", "r"]);
    lose();
    await running;
    expect(runs()).toBe(1);
  });

  it("takes no request that has come to too few nodes yet, and runs it when it has come to the others", async () => {
    const taken: string[] = [];
    const request = { id: "r", name: "s", atMs: Date.now() };
    let polls = 0;
    const own = session({
      read: (_, everything) => {
        if (!everything) polls += 1;
        return Promise.resolve({ ...EMPTY, requests: polls < 3 ? [] : [request], requestIds: ["r"] });
      },
      take: (_, ids) => {
        taken.push(...ids);
        return Promise.resolve(true);
      },
    });
    const running = own.run();
    await expect.poll(() => polls).toBe(1);
    own.nudge(true);
    await expect.poll(() => polls).toBe(2);
    await expect.poll(() => ticks.length).toBeGreaterThan(1);
    expect(taken).toEqual([]);
    own.nudge(true);
    await expect.poll(() => taken).toEqual(["r"]);
    lose();
    await running;
    expect(ticks.filter(({ id }) => id.endsWith("-r")).length).toBe(1);
  });

  it("claims a tick again that too few nodes answered for, and runs it once", async () => {
    let tries = 0;
    const asked: number[] = [];
    const running = session(
      {
        claim: (_, claims) => {
          const [first] = claims;
          if (first?.mode !== "once") return Promise.resolve(claimedAll(claims));
          tries += 1;
          asked.push(first.atMs);
          if (tries === 1) return Promise.reject(new Error("silent"));
          if (tries === 2)
            return Promise.resolve({ ...claimedAll(claims), outcomes: claims.map(() => ({ kind: "open" as const })) });
          return Promise.resolve(claimedAll(claims));
        },
      },
      { catchup: "all" },
    ).run();
    await expect.poll(() => ticks.length).toBeGreaterThan(12);
    lose();
    await running;
    expect(asked.slice(0, 3)).toEqual([asked[0], asked[0], asked[0]]);
    const times = ticks.map((tick) => tick.scheduledAt.getTime());
    expect(times).toEqual(times.map((_, index) => (asked[0] ?? 0) + 20 * index));
    expect(log[0]).toBe("Error: silent");
  });

  it("runs an earlier leader's unfinished tick, though too few nodes answered when it was first taken over", async () => {
    const tries: number[] = [];
    const running = session(
      {
        read: (_, everything) =>
          Promise.resolve(
            everything ? { ...EMPTY, pending: [{ name: "s", atMs: 1_000, attempt: 1, term: 4 }] } : EMPTY,
          ),
        claim: (_, claims) => {
          if (claims[0]?.mode !== "hold") return Promise.resolve(claimedAll(claims));
          tries.push(...claims.map((claim) => claim.attempt));
          if (tries.length === 1) return Promise.reject(new Error("silent"));
          if (tries.length === 2)
            return Promise.resolve({ ...claimedAll(claims), outcomes: claims.map(() => ({ kind: "open" as const })) });
          return Promise.resolve(claimedAll(claims));
        },
      },
      { delivery: "at-least-once" },
    ).run();
    await expect.poll(() => ticks.some((tick) => tick.scheduledAt.getTime() === 1_000)).toBe(true);
    lose();
    await running;
    expect(tries).toEqual([2, 2, 2]);
    expect(ticks.filter((tick) => tick.scheduledAt.getTime() === 1_000).map((tick) => tick.attempt)).toEqual([2]);
    expect(log[0]).toBe("Error: silent");
  });

  it("runs nothing more once a newer term was seen, though its own has not ended yet", async () => {
    let claims = 0;
    const running = session({
      claim: (_, asked) => {
        if (asked[0]?.mode !== "once") return Promise.resolve(claimedAll(asked));
        claims += 1;
        return Promise.resolve({ outcomes: [], isStale: true, sawBlank: false });
      },
    }).run();
    await expect.poll(() => claims).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect([claims, ticks]).toEqual([1, []]);
    lose();
    await running;
  });

  it("skips what another has dealt with", async () => {
    const until = Math.ceil(Date.now() / 20) * 20 + 200;
    const running = session({
      claim: (_, asked) =>
        Promise.resolve({
          isStale: false,
          sawBlank: false,
          outcomes: asked.map((claim) =>
            claim.mode !== "skip" && claim.atMs <= until
              ? { kind: "taken" as const, accountedMs: until }
              : { kind: "claimed" as const },
          ),
        }),
    }).run();
    await expect.poll(() => ticks.length).toBeGreaterThan(1);
    lose();
    await running;
    expect(ticks[0]?.scheduledAt.getTime()).toBe(until + 20);
  });

  it("leaves out no tick that falls due while the last of those that are caught up runs", async () => {
    const periodMs = 20;
    const lastMs = (Math.floor(Date.now() / periodMs) - 3) * periodMs;
    const ends: (() => void)[] = [];
    let claimed = 0;
    let newestMs = Number.POSITIVE_INFINITY;
    const running = session(
      {
        read: () =>
          Promise.resolve({
            ...EMPTY,
            schedules: new Map([["s", { accountedMs: lastMs, lastMs, missed: 0 }]]),
          }),
        claim: (_, claims) => {
          claimed += claims.length;
          if (claims[0]?.mode === "once") newestMs = Math.min(newestMs, claims.at(-1)?.atMs ?? newestMs);
          return Promise.resolve(claimedAll(claims));
        },
      },
      { catchup: "all", overlap: "skip" },
      ({ scheduledAt }) =>
        scheduledAt.getTime() < newestMs ? undefined : new Promise<void>((resolve) => ends.push(resolve)),
    ).run();
    await expect.poll(() => claimed).toBeGreaterThan(6);
    const timer = setInterval(() => ends.shift()?.(), 1);
    await expect.poll(() => ticks.length).toBeGreaterThan(10);
    clearInterval(timer);
    lose();
    for (const end of ends) end();
    await running;
    const times = ticks.map((tick) => tick.scheduledAt.getTime());
    expect(times).toEqual(times.map((_, index) => lastMs + periodMs * (index + 1)));
    expect(log.filter((line) => line === "skipped: overlap")).toEqual([]);
  });

  it("waits for its handlers and records what they have finished before it ends", async () => {
    const order: string[] = [];
    let end: () => void = () => undefined;
    const running = session(
      {
        finish: (_, done) => {
          order.push(`finished ${done.length}`);
          return Promise.resolve(true);
        },
      },
      { delivery: "at-least-once" },
      () =>
        new Promise<void>((resolve) => {
          end = () => {
            order.push("handler ends");
            resolve();
          };
        }),
    ).run();
    await expect.poll(() => ticks.length).toBe(1);
    controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "stopping" }));
    setTimeout(() => end(), 50);
    await running;
    expect(order).toEqual(["handler ends", "finished 1"]);
  });

  it("records what has ended as often as it takes while the term lasts, once more when that ends first, and does not reject", async () => {
    let end: () => void = () => undefined;
    for (const failures of [2, 3]) {
      controller = new AbortController();
      isCurrent = true;
      ticks = [];
      log = [];
      let tries = 0;
      const running = session(
        {
          finish: () => {
            tries += 1;
            if (failures > 2 && tries === 2) isCurrent = false;
            return tries > failures ? Promise.resolve(true) : Promise.reject(new Error("silent"));
          },
        },
        { delivery: "at-least-once" },
        () =>
          new Promise<void>((resolve) => {
            end = resolve;
          }),
      ).run();
      await expect.poll(() => ticks.length).toBe(1);
      controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "stopping" }));
      end();
      await running;
      expect([tries, log.filter((line) => line === "Error: silent").length]).toEqual([3, failures]);
    }
  });

  it("does not record a tick as finished whose handler ended after the term, or gave up because of its end", async () => {
    const finished: unknown[] = [];
    const running = session(
      {
        finish: (_, done) => {
          finished.push(...done);
          return Promise.resolve(true);
        },
      },
      { delivery: "at-least-once" },
      (tick) =>
        new Promise((_, reject) => {
          tick.signal.addEventListener("abort", () => reject(tick.signal.reason as Error));
        }),
    ).run();
    await expect.poll(() => ticks.length).toBe(1);
    controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "stopping" }));
    await running;
    expect(finished).toEqual([]);
  });

  it("passes over what it could not claim before a pause ended, when it hears of that", async () => {
    let resumedMs = Number.POSITIVE_INFINITY;
    const running = session(
      {
        read: (_, everything) => {
          if (everything) return Promise.resolve(EMPTY);
          resumedMs = Math.floor(Date.now()) + 100;
          return expect
            .poll(() => Date.now())
            .toBeGreaterThan(resumedMs)
            .then(() => ({ ...EMPTY, paused: new Map([["s", { version: 1, isPaused: false, resumedMs }]]) }));
        },
        claim: (_, claims) => {
          if (claims[0]?.mode === "skip" || Date.now() > resumedMs + 50) return Promise.resolve(claimedAll(claims));
          return Promise.resolve({ ...claimedAll(claims), outcomes: claims.map(() => ({ kind: "open" as const })) });
        },
      },
      { catchup: "all" },
    ).run();
    await expect.poll(() => ticks.length).toBeGreaterThan(2);
    lose();
    await running;
    expect(ticks[0]?.scheduledAt.getTime()).toBeGreaterThan(resumedMs);
  });

  describe("of an at-least-once schedule takes out what is noted as running and does not run:", () => {
    const least = { delivery: "at-least-once" } as const;
    let finished: NamedTick[];
    const finish: TickStore["finish"] = (_, done) => {
      finished.push(...done);
      return Promise.resolve(true);
    };
    beforeEach(() => {
      finished = [];
    });

    it("a tick whose end, or whose claim's, a node has missed", async () => {
      const noted = [
        { name: "s", atMs: 1_000, attempt: 1, term: 5 },
        { name: "s", atMs: 2_000, attempt: 1, term: 4 },
        { name: "other", atMs: 3_000, attempt: 1, term: 4 },
      ];
      const running = session(
        {
          read: (_, everything) =>
            Promise.resolve({
              ...EMPTY,
              noted: everything
                ? []
                : [...noted, ...ticks.map((tick) => ({ name: "s", atMs: +tick.scheduledAt, attempt: 1, term: 5 }))],
            }),
          finish,
        },
        { ...least, overlap: "allowAll" },
        () => new Promise(() => undefined),
      ).run();
      await expect.poll(() => finished.map(({ atMs }) => atMs)).toEqual([1_000, 2_000]);
      lose();
      void running;
    });

    it("nothing that an earlier session of the same term has left to the next leader", async () => {
      const noted = [{ name: "s", atMs: 1_000, attempt: 1, term: 5 }];
      let polls = 0;
      const running = session(
        {
          read: (_, everything) => {
            if (!everything) polls += 1;
            return Promise.resolve({ ...EMPTY, noted });
          },
          finish,
        },
        least,
      ).run();
      await expect.poll(() => polls).toBe(1);
      await expect.poll(() => finished.length).toBeGreaterThan(2);
      lose();
      await running;
      expect(finished.map(({ atMs }) => atMs)).not.toContain(1_000);
    });

    it("a tick that is paused on some nodes and stored on the others", async () => {
      const asked: number[] = [];
      const running = session(
        {
          claim: (_, claims) => {
            if (claims[0]?.mode === "skip") return Promise.resolve(claimedAll(claims));
            asked.push(...claims.map(({ atMs }) => atMs));
            return Promise.resolve({
              ...claimedAll(claims),
              outcomes: claims.map(() => ({ kind: "paused" as const })),
            });
          },
          finish,
        },
        least,
      ).run();
      await expect.poll(() => finished.length).toBeGreaterThan(0);
      expect(finished[0]?.atMs).toBe(asked[0]);
      lose();
      await running;
    });

    it("a tick that was claimed too late to be answered, and has been left behind", async () => {
      const asked: number[] = [];
      const running = session(
        {
          claim: async (_, claims) => {
            asked.push(...claims.filter(({ mode }) => mode === "least").map(({ atMs }) => atMs));
            if (asked.length !== 1) return claimedAll(claims);
            await new Promise((resolve) => setTimeout(resolve, 50));
            throw new Error("silent");
          },
          finish,
        },
        least,
        () => new Promise(() => undefined),
      ).run();
      await expect.poll(() => finished.length).toBeGreaterThan(0);
      expect(finished[0]?.atMs).toBe(asked[0]);
      expect(asked[1]).toBeGreaterThan(asked[0] ?? 0);
      lose();
      void running;
    });

    it("a tick that ended while it was restored", async () => {
      let end: () => void = () => undefined;
      let isBlank = false;
      let from = -1;
      const own = session(
        {
          read: () => Promise.resolve({ ...EMPTY, sawBlank: isBlank }),
          claim: async (_, claims, isWhole) => {
            if (isWhole !== true || from >= 0) return claimedAll(claims);
            end();
            await expect.poll(() => finished.length).toBeGreaterThan(0);
            from = finished.length;
            return claimedAll(claims);
          },
          finish,
        },
        least,
        () =>
          new Promise<void>((resolve) => {
            end = resolve;
          }),
      );
      const running = own.run();
      await expect.poll(() => ticks.length).toBe(1);
      isBlank = true;
      own.nudge(true);
      await expect.poll(() => from).toBe(1);
      await expect.poll(() => finished[1]).toEqual(finished[0]);
      lose();
      end();
      void running;
    });
  });

  it("does not run the unfinished tick of an earlier leader if its schedule is paused", async () => {
    const finished: unknown[] = [];
    const paused = new Map([["s", { version: 1, isPaused: true, resumedMs: 0 }]]);
    const running = session(
      {
        read: (_, everything) =>
          Promise.resolve({
            ...EMPTY,
            paused,
            pending: everything ? [{ name: "s", atMs: 1_000, attempt: 1, term: 4 }] : [],
          }),
        finish: (_, done) => {
          finished.push(...done);
          return Promise.resolve(true);
        },
      },
      { delivery: "at-least-once" },
    ).run();
    await expect.poll(() => finished).toEqual([{ name: "s", atMs: 1_000 }]);
    lose();
    await running;
    expect([ticks, log[0]]).toEqual([[], "skipped: paused"]);
  });

  it("counts no attempt for a tick that it leaves to the next leader without having begun it", async () => {
    const pending = [1_000, 2_000, 3_000].map((atMs) => ({ name: "s", atMs, attempt: 3, term: 4 }));
    const holds: Claim[][] = [];
    const running = session(
      {
        read: (_, everything) => Promise.resolve(everything ? { ...EMPTY, pending } : EMPTY),
        claim: (_, claims) => {
          if (claims[0]?.mode === "hold") holds.push([...claims]);
          return Promise.resolve(claimedAll(claims));
        },
      },
      { delivery: "at-least-once" },
      ({ signal }) => new Promise((_, reject) => onAbort(signal, () => reject(signal.reason as Error))),
    ).run();
    await expect.poll(() => ticks.length).toBe(1);
    controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "stopping" }));
    await running;
    const told = holds.map((claims) =>
      claims.filter(({ atMs }) => atMs <= 3_000).map(({ atMs, attempt }) => [atMs, attempt]),
    );
    expect(told).toEqual([[1_000, 2_000, 3_000].map((atMs) => [atMs, 4]), [2_000, 3_000].map((atMs) => [atMs, 3])]);
  });

  it("runs a tick again that an earlier leader began, and gives it up after maxAttempts", async () => {
    const pending = (attempt: number): StoredState => ({
      ...EMPTY,
      pending: [{ name: "s", atMs: 1_000, attempt, term: 4 }],
    });
    for (const [attempt, expected] of [
      [4, { attempt: 5, log: [] }],
      [5, { attempt: undefined, log: ["skipped: attempts"] }],
    ] as const) {
      controller = new AbortController();
      isCurrent = true;
      ticks = [];
      log = [];
      const running = session(
        { read: (_, everything) => Promise.resolve(everything ? pending(attempt) : EMPTY) },
        { delivery: "at-least-once", maxAttempts: 5 },
      ).run();
      await expect.poll(() => ticks.some((tick) => tick.scheduledAt.getTime() !== 1_000)).toBe(true);
      lose();
      await running;
      const again = ticks.find((tick) => tick.scheduledAt.getTime() === 1_000);
      expect([again?.attempt, again?.id, log]).toEqual([
        expected.attempt,
        again === undefined ? undefined : "s@19700101T000001.000Z",
        expected.log,
      ]);
    }
  });
});
