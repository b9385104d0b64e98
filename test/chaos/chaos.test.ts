import { describe, expect, it } from "vitest";
import { runChaos } from "./chaos.ts";
import { checkHistory } from "./checker.ts";
import type { HistoryLine, Told } from "./history.ts";
import { ELECTION } from "./processes/arguments.ts";
import { reportPage } from "./report.ts";

const told = (who: string, what: Told): HistoryLine => ({ kind: "told", who, told: what });

function held(
  who: string,
  hold: string,
  fencingToken: number,
  fromMs: number,
  toMs: number,
  resource = "ledger",
): HistoryLine[] {
  const common = { type: "held", hold, resource, fencingToken } as const;
  return [told(who, { ...common, state: "start", atMs: fromMs }), told(who, { ...common, state: "seen", atMs: toMs })];
}

const job = (key: string, seq: number, atMs: number): HistoryLine => told("worker 1", { type: "job", key, seq, atMs });

describe("the chaos checker", () => {
  it("accepts holders one after the other", () => {
    const history = [...held("a", "h1", 1, 0, 10), ...held("b", "h2", 2, 11, 20)];
    expect(checkHistory(history).problems).toEqual([]);
  });

  it("finds two holders at a time, even with a third in between", () => {
    const history = [...held("a", "h1", 1, 0, 30), ...held("b", "h2", 2, 5, 6), ...held("c", "h3", 3, 20, 25)];
    expect(checkHistory(history).problems).toEqual([
      expect.stringContaining("exclusion: a (1) and b (2) both had ledger for 1.0 ms"),
      expect.stringContaining("exclusion: a (1) and c (3) both had ledger for 5.0 ms"),
    ]);
  });

  it("finds two leaders at one instant, with any other locks", () => {
    const [billing, mail] = ["leader:billing", "leader:mail"];
    const history = [
      ...held("a", "h1", 1, 0, 10, billing),
      ...held("b", "h2", 2, 9, 20, billing),
      ...held("c", "h3", 1, 0, 20, mail),
    ];
    expect(checkHistory(history).problems).toEqual(["exclusion: a (1) and b (2) both had leader:billing for 1.0 ms"]);
  });

  it("finds a fencing token that is not greater than the previous one", () => {
    const history = [...held("a", "h1", 7, 0, 10), ...held("b", "h2", 7, 11, 20)];
    expect(checkHistory(history).problems).toEqual(["token order: b (7) had ledger after a (7)"]);
  });

  it("finds a refused write of a holder whose lock was valid, and of no other holder", () => {
    const write = {
      kind: "write",
      who: "a",
      hold: "h1",
      resource: "ledger",
      fencingToken: 1,
      accepted: false,
    } as const;
    const history = held("a", "h1", 1, 0, 10);
    expect(checkHistory([...history, { ...write, atMs: 15 }]).problems).toEqual([]);
    expect(checkHistory([...history, { ...write, atMs: 5 }]).problems).toHaveLength(1);
  });

  it("finds a job that was added but not completed", () => {
    const history: HistoryLine[] = [
      { kind: "added", key: "k", seq: 0 },
      { kind: "added", key: "k", seq: 1 },
      { kind: "completed", key: "k", seq: 0 },
    ];
    expect(checkHistory(history).problems).toEqual(["lost job: k-1 was added and never completed"]);
  });

  it("finds jobs of a key that start out of order, but allows a job to run again", () => {
    const history = [job("k", 0, 1), job("k", 1, 2), job("k", 0, 3), job("k", 3, 4), job("k", 2, 5), job("m", 0, 6)];
    expect(checkHistory(history).problems).toEqual(["order: k-2 began after k-3"]);
  });

  it("passes on the complaints of a process", () => {
    const history = [told("worker 1", { type: "trouble", message: "unhandled rejection: no" })];
    expect(checkHistory(history).problems).toEqual(["worker 1: unhandled rejection: no"]);
  });
});

describe("a chaos run", () => {
  it("keeps every promise while processes, servers and the network fail", { timeout: 240_000 }, async () => {
    const history = await runChaos({ seed: process.env["CHAOS_SEED"] ?? "ci", faultyMs: 40_000 });
    const verdict = checkHistory(history);
    expect(verdict.problems).toEqual([]);
    expect(verdict.jobs.completed).toBeGreaterThan(50);
    expect(verdict.intervals.filter(({ resource }) => resource === `leader:${ELECTION}`).length).toBeGreaterThan(3);
    expect(new Set(verdict.intervals.map(({ resource }) => resource)).size).toBeGreaterThan(3);
    const page = reportPage("chaos", history, verdict);
    expect(page).toContain("no invariant broke");
    expect(page).not.toMatch(/NaN|Infinity|undefined/);
    const faults = history.filter(({ kind }) => kind === "fault");
    // Each hold, and each fault except the last fault of all processes, is a bar with a description.
    expect(page.match(/<title>[^<]*, fencing token /g)).toHaveLength(verdict.intervals.length);
    expect(page.match(/<title>\d+ ms: /g)).toHaveLength(faults.length - 1);
    for (const name of ["node 1", "node 2", "node 3", "queue", "locker 1"]) expect(page).toContain(`>${name}<`);
  });
});
