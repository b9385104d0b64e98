import { describe, expect, it } from "vitest";
import { check, type Figures } from "./checker.ts";
import { FAULT_KINDS, type FaultKind, type TortureEvent } from "./events.ts";
import { parseKinds, planFaults, strikesServer } from "./faults.ts";
import { brokenPromises, reportText } from "./report.ts";
import { loadSystem } from "./systems/index.ts";
import { SYSTEM_NAMES, type SystemName } from "./systems/system.ts";
import { runTorture } from "./torture.ts";

const LEASE_MS = 100;
const END_MS = 1_000;

const figuresOf = (...parts: readonly (TortureEvent | readonly TortureEvent[])[]): Figures =>
  check(parts.flat(), { endMs: END_MS, leaseMs: LEASE_MS, standstillMs: END_MS });

interface TurnText {
  readonly turn: string;
  readonly who: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly key?: string;
  readonly job?: number;
}

/** A turn whose system says to the end that it goes on. */
function turn({ turn: id, who, fromMs, toMs, key = "k", job }: TurnText): TortureEvent[] {
  return [
    { kind: "granted", who, turn: id, key, job, atMs: fromMs },
    { kind: "confirmed", turn: id, atMs: toMs },
    { kind: "ended", turn: id, atMs: toMs },
  ];
}

function effect(job: number, read = 0, found = read, key = "k"): TortureEvent {
  return { kind: "written", turn: `t${job}`, key, job, read, found, isAccepted: true };
}

const added = (job: number, atMs = 0, key = "k"): TortureEvent => ({ kind: "added", key, job, atMs });

function fault(id: number, kind: FaultKind, who: string | undefined, fromMs: number, toMs: number): TortureEvent[] {
  return [
    { kind: "fault", id, fault: kind, who, text: "", atMs: fromMs },
    { kind: "mended", id, atMs: toMs },
  ];
}

describe("the torture checker", () => {
  it("accepts turns one after the other", () => {
    const figures = figuresOf(
      turn({ turn: "a", who: "1", fromMs: 0, toMs: 10 }),
      turn({ turn: "b", who: "2", fromMs: 11, toMs: 20 }),
      turn({ turn: "c", who: "2", fromMs: 5, toMs: 15, key: "another" }),
    );
    expect(figures.turns).toBe(3);
    expect(brokenPromises(figures)).toEqual([]);
  });

  it("counts a turn once that is confirmed after the key was granted to another process", () => {
    const figures = figuresOf(
      turn({ turn: "a", who: "1", fromMs: 0, toMs: 30 }),
      turn({ turn: "b", who: "2", fromMs: 12, toMs: 14 }),
      turn({ turn: "c", who: "3", fromMs: 20, toMs: 25 }),
    );
    expect(figures.overlaps).toEqual([{ key: "k", who: "1", other: "2", fromMs: 12, forMs: 18, after: "no fault" }]);
    expect(brokenPromises(figures)).toEqual(["overlaps: 1"]);
  });

  it("does not count unconfirmed work after the last confirmation", () => {
    const figures = figuresOf(
      { kind: "granted", who: "1", turn: "a", key: "k", atMs: 0 },
      { kind: "confirmed", turn: "a", atMs: 5 },
      { kind: "ended", turn: "a", atMs: 40 },
      turn({ turn: "b", who: "2", fromMs: 12, toMs: 20 }),
    );
    expect(figures.overlaps).toEqual([]);
  });

  it("explains an overlap by a fault of its own process before faults of other processes", () => {
    const turns = [
      ...turn({ turn: "a", who: "1", fromMs: 100, toMs: 400 }),
      ...turn({ turn: "b", who: "2", fromMs: 300, toMs: 310 }),
    ];
    const frozen = fault(0, "process frozen", "1", 110, 390);
    const restarted = fault(1, "server restarted", undefined, 200, 210);
    const blocked = fault(2, "event loop blocked", "3", 250, 260);
    const causeOf = (...faults: readonly TortureEvent[][]): unknown => figuresOf(turns, ...faults).overlaps[0]?.after;
    expect(causeOf(frozen, restarted, blocked)).toBe("process frozen");
    expect(causeOf(restarted, blocked)).toBe("server restarted");
    expect(causeOf(blocked)).toBe("no fault");
    expect(causeOf(fault(3, "clock stepped", "2", 150, 295), restarted)).toBe("clock stepped");
    expect(causeOf(fault(3, "clock stepped", "2", 150, 160), restarted)).toBe("server restarted");
  });

  it("counts an effect that replaced a different counter than it read, and refused late writes", () => {
    const late: TortureEvent = { kind: "written", turn: "a", key: "k", read: 1, found: 2, isAccepted: false };
    const figures = figuresOf(effect(0, 0), effect(1, 1), effect(2, 1, 2), late);
    expect(figures).toMatchObject({ effects: 3, lostUpdates: 1, refusedWrites: 1 });
    expect(brokenPromises(figures)).toEqual(["lost updates: 1"]);
  });

  it("counts jobs without effect, repeated effects, and first effects out of order", () => {
    const jobs = [added(0), added(1), added(2), added(3)];
    expect(figuresOf(jobs, effect(0), effect(2), effect(1), effect(0)).jobs).toEqual({
      added: 4,
      lost: 1,
      repeatedEffects: 1,
      outOfOrder: 1,
    });
    expect(
      figuresOf(
        jobs,
        [0, 0, 1, 2, 2, 3].map((job) => effect(job)),
      ).jobs,
    ).toMatchObject({ lost: 0, outOfOrder: 0 });
  });

  const standstillsOf = (...entries: readonly (TortureEvent | readonly TortureEvent[])[]): Figures["standstills"] =>
    check(entries.flat(), { endMs: END_MS, leaseMs: LEASE_MS, standstillMs: 200 }).standstills;

  it("finds a lock without a holder for longer than allowed, until another turn or the end", () => {
    expect(
      standstillsOf(
        turn({ turn: "a", who: "1", fromMs: 300, toMs: 310 }),
        turn({ turn: "b", who: "1", fromMs: 500, toMs: 510 }),
        turn({ turn: "c", who: "1", fromMs: 711, toMs: 720 }),
      ),
    ).toEqual([
      { key: "k", forMs: 201, isOpen: false },
      { key: "k", forMs: 280, isOpen: true },
    ]);
  });

  it("finds a key that stands still while one of its jobs waits, but no key without jobs", () => {
    const first = [added(0, 0), ...turn({ turn: "t0", who: "1", fromMs: 10, toMs: 20, job: 0 }), effect(0)];
    expect(standstillsOf(first)).toEqual([]);
    const second = [added(1, 500), ...turn({ turn: "t1", who: "1", fromMs: 900, toMs: 950, job: 1 })];
    expect(standstillsOf(first, second, effect(1))).toEqual([{ key: "k", forMs: 400, isOpen: false }]);
    expect(standstillsOf(first, added(1, 500))).toEqual([{ key: "k", forMs: 500, isOpen: true }]);
    expect(standstillsOf(added(0, 100))).toEqual([{ key: "k", forMs: 900, isOpen: true }]);
  });

  it("measures how long a key stands still after its holder was killed", () => {
    const figures = figuresOf(
      { kind: "granted", who: "1", turn: "a", key: "k", atMs: 100 },
      fault(0, "process killed", "1", 110, 120),
      turn({ turn: "b", who: "2", fromMs: 210, toMs: 220 }),
    );
    expect(figures.recoveriesMs).toEqual([100]);
  });

  it("counts uncaught errors by message", () => {
    const uncaught = { kind: "uncaught", who: "1", message: "no", atMs: 5 } as const;
    expect(figuresOf(uncaught, uncaught).uncaught).toEqual({ no: 2 });
  });
});

describe("the torture plan", () => {
  const options = { kinds: FAULT_KINDS, faultyMs: 60_000, leaseMs: 1_000, processes: 4, servers: 3 };
  const plan = planFaults({ ...options, seed: "ci" });

  it("is the same for the same seed, and contains every kind of fault", () => {
    expect(planFaults({ ...options, seed: "ci" })).toEqual(plan);
    expect(planFaults({ ...options, seed: "other" })).not.toEqual(plan);
    expect(new Set(plan.map(({ kind }) => kind))).toEqual(new Set(FAULT_KINDS));
  });

  it("strikes one server at a time, and a process with one fault at a time", () => {
    const groups = new Map<string, typeof plan>();
    for (const each of plan) {
      const name = strikesServer(each.kind) ? "servers" : `process ${each.target}`;
      groups.set(name, [...(groups.get(name) ?? []), each]);
    }
    for (const faults of groups.values()) {
      for (const [index, { atMs }] of faults.entries()) {
        const before = faults[index - 1];
        expect(atMs).toBeGreaterThanOrEqual(before === undefined ? 0 : before.atMs + before.forMs);
      }
    }
  });

  it("contains only requested faults", () => {
    const kinds = parseKinds("process killed, clock stepped");
    expect(new Set(planFaults({ ...options, kinds, seed: "ci" }).map(({ kind }) => kind))).toEqual(new Set(kinds));
    expect(() => parseKinds("process kiled")).toThrow("--faults must be of process killed, ");
  });
});

describe("a torture run", () => {
  const runs: readonly (readonly [SystemName, number])[] = [
    ["x-locks", 500],
    ["x-workers", 500],
  ];

  it.concurrent.each(runs)("breaks no promise of %s in a short run", async (name, leaseMs) => {
    const run = await runTorture({ system: name, seed: "ci", faultyMs: 5_000, leaseMs });
    expect(brokenPromises(run.figures)).toEqual([]);
    expect(run.figures.effects).toBeGreaterThan(0);
    expect(Object.keys(run.figures.faults)).not.toEqual([]);
    const text = reportText([{ system: await loadSystem[name](), version: "0", runs: [run] }], "npm run torture");
    expect(text).toContain(`npm run torture -- --system ${name} --seed ci`);
    expect(text).not.toMatch(/NaN|Infinity|undefined/);
  });

  it("describes each system", async () => {
    const systems = await Promise.all(SYSTEM_NAMES.map((name) => loadSystem[name]()));
    for (const { title, configuration, promises, question } of systems)
      for (const text of [title, configuration, promises, question]) expect(text).not.toBe("");
  });
});
