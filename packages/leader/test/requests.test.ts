/** The requests of a candidate, a term and an observer to the nodes, and their times. */
import {
  type Clock,
  LockHeldError,
  type LockLossReason,
  LockLostError,
  type Redlock,
  type Vote,
} from "@x/redlock-core";
import { Emitter, readClock } from "@x/redlock-core/kit";
import { leaseEnd, type RenewalPolicy } from "@x/redlock-core/protocol";
import { describe, expect, it } from "vitest";
import { PROTOCOL } from "../../redlock-core/src/lock/lock.ts";
import { LEADER_EVENTS, type LeaderEvents } from "../src/events/events.ts";
import { resolveOptions } from "../src/options.ts";
import { Ledger, type RecordToWrite } from "../src/record/ledger.ts";
import { localLeases, type TermLease } from "../src/term/lease.ts";
import type { Standing } from "../src/term/standing.ts";
import { HeldTerm } from "../src/term/term.ts";

const TIMES = { leaseDuration: 1_500, renewDeadline: 1_000, retryPeriod: 200 };
const options = resolveOptions(
  { name: "x", ...TIMES },
  { defaultId: "a", maxTtl: 60_000, driftFactor: 0.01, nodeTimeout: 300 },
);
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A clock that stands still unless a test moves it. Timers of 0 ms run in a later turn, and other timers never run. */
class StillClock implements Clock {
  ms = 0;
  monotonicMs(): number {
    return this.ms;
  }
  wallMs(): number {
    return this.ms;
  }
  suspendedMs(): number {
    return 0;
  }
  schedule(afterMs: number, run: () => void): () => void {
    const timer = afterMs === 0 ? setImmediate(run) : undefined;
    return () => clearImmediate(timer);
  }
  defer(run: () => void): void {
    process.nextTick(run);
  }
}

describe("a term", () => {
  function held({ worker = undefined as typeof options.worker, write = (): Promise<void> => Promise.resolve() } = {}) {
    const clock = new StillClock();
    const log: string[] = [];
    const lock = new AbortController();
    let lossReason: LockLossReason | undefined;
    let renewals: RenewalPolicy | undefined;
    let hear: (news: string) => void = () => undefined;
    const lease: TermLease = {
      fencingToken: 5,
      token: "t",
      get start() {
        return readClock(clock);
      },
      get validUntil() {
        return leaseEnd(readClock(clock), options.leaseDuration, 0);
      },
      signal: lock.signal,
      get lossReason() {
        return lossReason;
      },
      keep: (policy) => {
        renewals = policy;
      },
      leave: () => {
        log.push("leave");
      },
      release: () => {
        log.push("release");
        return Promise.resolve(true);
      },
    };
    const ledger = {
      write: async ({ ended }: RecordToWrite) => {
        log.push(ended ? "ended" : "record");
        await write();
        return { outcome: "written", isToResign: false };
      },
      listen: (listener: (news: string) => void) => {
        log.push("listen");
        hear = listener;
        return Promise.resolve(() => log.push("unlisten"));
      },
    } as unknown as Ledger;
    const standing = {
      ledger,
      options: { ...options, worker },
      clock,
      instance: "a#1",
      events: new Emitter<LeaderEvents>(LEADER_EVENTS),
      move: () => undefined,
      report: (error: unknown) => log.push(String(error)),
    } as unknown as Standing<HeldTerm>;
    const term = new HeldTerm({
      standing,
      lease,
      isEligible: () => Promise.resolve(true),
      cool: () => undefined,
    });
    const renew = async (afterMs: number): Promise<void> => {
      clock.ms += afterMs;
      renewals?.onRenewed?.(1);
      await turn();
    };
    standing.events.on("renewFailed", () => log.push("renewFailed"));
    const lose = (reason: LockLossReason): void => {
      lossReason = reason;
      lock.abort(new LockLostError({ resources: ["leader:x"], reason, fencingToken: 5, heldMs: 1, votes: [] }));
    };
    return { term, log, renew, lose, policy: () => renewals, hear: (news: string) => hear(news) };
  }

  it("renews its lock once per period, even after a failure", () => {
    const { policy } = held();
    expect([policy()?.dueMs(800, 1_500), policy()?.retryMs(800, 900, 1_500)]).toEqual([1_000, 1_000]);
  });

  it.each([
    ["taken", "taken", ["leave"]],
    ["forced", "forced", ["leave"]],
    ["expired", undefined, ["renewFailed"]],
  ] as const)("treats a lock that is %s as %s, because an expiry is handled by the deadline", (lost, reason, told) => {
    const { term, log, lose } = held();
    lose(lost);
    expect([term.reason, term.isCurrent(), log]).toEqual([reason, reason === undefined, told]);
  });

  it("leaves its lock before releasing it, and receives no further notification", async () => {
    const { term, log, lose } = held();
    await term.finish();
    lose("expired");
    expect([log, term.reason]).toEqual([["leave", "release"], "resigned"]);
  });

  it("sends its last record with the release, and listens only between the start and the end of the task", async () => {
    let resolve: () => void = () => undefined;
    const marked = new Promise<void>((done) => {
      resolve = done;
    });
    let isEnding = false;
    const { term, log } = held({ write: () => (isEnding ? marked : Promise.resolve()) });
    term.enter(new AbortController().signal);
    expect(log).toEqual(["record"]);
    await turn();
    await turn();
    expect(log).toEqual(["record", "listen"]);
    isEnding = true;
    const finished = term.finish();
    expect(log.slice(2)).toEqual(["leave", "ended", "release"]);
    await turn();
    expect(log.slice(5)).toEqual(["unlisten"]);
    resolve();
    await finished;
  });

  it("waits for its last record if the release uses another connection", async () => {
    let resolve: () => void = () => undefined;
    let isEnding = false;
    const marked = new Promise<void>((done) => {
      resolve = done;
    });
    const { term, log } = held({
      worker: { redlock: "file:///r.js", maxBlock: 100 },
      write: () => (isEnding ? marked : Promise.resolve()),
    });
    term.enter(new AbortController().signal);
    await turn();
    isEnding = true;
    const finished = term.finish();
    await turn();
    expect(log).not.toContain("release");
    resolve();
    await finished;
    expect(log.filter((each) => !each.endsWith("listen"))).toEqual(["record", "leave", "ended", "release"]);
  });

  it("repeats its record once per lease, and immediately when it is asked to resign", async () => {
    const { term, log, renew, hear } = held();
    const written = (): number => log.filter((each) => each === "record").length;
    term.enter(new AbortController().signal);
    await turn();
    for (let renewals = 0; renewals < 6; renewals += 1) await renew(200);
    expect(written()).toBe(1);
    await renew(200);
    expect(written()).toBe(2);
    for (let renewals = 0; renewals < 35; renewals += 1) await renew(200);
    expect(written()).toBe(7);
    hear("resign");
    await turn();
    expect(written()).toBe(8);
    await term.finish();
  });

  it("repeats its record with the next renewal if the write was refused, or requested during another write", async () => {
    let answer: Promise<void> = Promise.resolve();
    const { term, log, renew, hear } = held({ write: () => answer });
    const written = (): number => log.filter((each) => each === "record").length;
    term.enter(new AbortController().signal);
    await turn();
    await turn();
    answer = Promise.reject(new Error("no quorum"));
    hear("resign");
    await turn();
    let resolve: () => void = () => undefined;
    answer = new Promise((done) => {
      resolve = done;
    });
    await renew(200);
    expect(written()).toBe(3);
    hear("resign");
    await turn();
    expect(written()).toBe(3);
    resolve();
    await turn();
    await renew(200);
    expect(written()).toBe(4);
    await term.finish();
  });
});

describe("a candidate", () => {
  function waiting() {
    const clock = new StillClock();
    const asked: { timeout: number; signal: AbortSignal; reject: (error: unknown) => void }[] = [];
    let tell: (event: { resources: readonly string[]; votes: readonly Partial<Vote>[] }) => void = () => undefined;
    const facts = { resources: [], votes: [], nodeCount: 3, quorum: 2, attempts: 1, elapsedMs: 0, heldHere: [] };
    const held = new LockHeldError(facts);
    const redlock = {
      quorum: 2,
      on: (_: string, listener: typeof tell) => {
        tell = listener;
        return () => undefined;
      },
      [PROTOCOL]: {
        clock,
        placeAt: () => 1,
        acquire: (_: string, { timeout, signal }: { timeout: number; signal: AbortSignal }) =>
          new Promise((_resolve, reject) => {
            if (timeout === 0) reject(held);
            else asked.push({ timeout, signal, reject });
            signal.addEventListener("abort", () => reject(signal.reason), { once: true });
          }),
      },
    } as unknown as Redlock;
    const leases = localLeases(redlock, { ...options, note: "" });
    const acquiring = leases.acquire(new AbortController().signal, () => undefined).catch((error: unknown) => error);
    const refuse = async (vote: "held" | "failed"): Promise<void> => {
      tell({ resources: [options.resource], votes: [{ vote }, { vote }, { vote: "failed" }] });
      await turn();
    };
    return { clock, asked, acquiring, refuse };
  }

  it("repeats its attempt seldom while nodes answer", async () => {
    const { clock, asked, acquiring, refuse } = waiting();
    await turn();
    for (let seconds = 0; seconds < 60; seconds += 1) {
      clock.ms += 1_000;
      await refuse("held");
    }
    expect(asked.map(({ timeout }) => timeout)).toEqual([120_000]);
    asked[0]?.reject(new Error("over"));
    expect(await acquiring).toMatchObject({ message: "over" });
  });

  it("reports after four leases, and at least 10 s, that no quorum answers, by one last attempt", async () => {
    const { clock, asked, acquiring, refuse } = waiting();
    await turn();
    clock.ms += 100_000;
    for (let seconds = 0; seconds < 10; seconds += 1) {
      await refuse("failed");
      clock.ms += 1_000;
    }
    expect(asked).toHaveLength(1);
    await refuse("failed");
    await refuse("failed");
    expect(asked.map(({ timeout }) => timeout)).toEqual([120_000, options.retryPeriod]);
    asked[1]?.reject(new Error("silent"));
    expect(await acquiring).toMatchObject({ message: "silent" });
  });
});

it("all observers of a process that look in one turn of the event loop share one request, and later observers another", async () => {
  let runs = 0;
  const redlock = {
    quorum: 1,
    nodeCount: 1,
    [PROTOCOL]: {
      clock: new StillClock(),
      keys: {
        sideKey: (resource: string, name: string) => `${resource}:${name}`,
        lockKey: (resource: string) => resource,
        channel: (resource: string, name: string) => `x:${resource}:${name}`,
      },
      run: async () => {
        runs += 1;
        await turn();
        return [{ ok: true, node: "n", value: ["", -2, ["", "", "", "", ""], [], ""] }];
      },
    },
  } as unknown as Redlock;
  const ledgers = Array.from({ length: 200 }, (_, at) => new Ledger(redlock, "x", at < 199 ? "leader:x" : "leader:y"));
  await Promise.all(ledgers.map((ledger) => ledger.look(5)));
  expect(runs).toBe(2);
  const first = ledgers[0]?.look(5);
  await turn();
  await Promise.all([first, ledgers[1]?.look(5), ledgers[1]?.look(6)]);
  expect(runs).toBe(5);
});
