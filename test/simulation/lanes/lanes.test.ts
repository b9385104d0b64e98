import { describe, expect, it } from "vitest";
import { PLAYED, TEST_SEED } from "../known.ts";
import { loadLanes } from "./load.ts";
import { FOCUSES } from "./mutations.ts";
import { laneText } from "./report.ts";
import { searchLanes } from "./search.ts";
import { type Focus, STEPS, type Step } from "./setting.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;
const RUNS = Number(process.env["LANE_RUNS"] ?? PLAYED.lanes);
const code = await loadLanes();

describe("lanes, step by step", () => {
  it("keep every invariant in random schedules of every step", { timeout: 600_000 }, async () => {
    const taken = new Set<Step>();
    const found = await searchLanes(code, {
      seed: SEED,
      runs: RUNS,
      onResult: ({ steps }) => {
        for (const step of steps.keys()) taken.add(step);
      },
    });
    expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
    expect(found.handedOut).toBeGreaterThan(10 * found.runs);
    expect(found.parked).toBeGreaterThan(found.runs);
    expect(STEPS.filter((step) => !taken.has(step))).toEqual([]);
  });

  it.each([
    ["put a LIFO job that is retried manually in front, as BullMQ does", "hostile-b/59"],
    [
      "let a parked job pass a job that was put in front earlier, if its timer has fired and its key is passed on",
      "51387t/79",
      {
        name: "backlog",
        onFailure: "block",
        steps: { add: 9, fetch: 3, finish: 7, remove: 1.5, "add to front": 1.5 },
        keys: ["a", "b", "c"],
        severalChance: 0,
        sameIdChance: 0.9,
      },
    ],
    ["let a limited job of a lost line wait for the end of the limit, even if the limit is removed", "p/26"],
    [
      "let a limited job of a lost line wait for the end of the limit, even if the limit was replaced during a pause",
      "fresh-5.81.5/203",
    ],
    [
      "let a job that was handed out continue before a job that returned from its wait for a lock to a limited key",
      "ci/300",
      {
        name: "locks and a rate",
        steps: { "window passes": 3, yield: 3, wake: 2, kill: 6 },
        keys: ["a", "b"],
        severalChance: 0,
        rate: 3,
        slots: 2,
      },
    ],
    [
      "let a chosen job that goes back stay behind a job that waits for its lock, if the key is limited",
      "fb/12",
      "policies of keys, pauses",
    ],
    ["give a call up to its limit of jobs behind missing ones", "fb/6", "merged calls"],
    ["wake a job that has lost its key and received it again", "gb/15", "lost while yielding"],
    [
      "let a turn keep the number of starts that the key's weight allowed when the turn began",
      "gb/14",
      "rotation, weights that operators say",
    ],
    [
      "let a job that backs off without its key go before a job that has backed off with the key",
      "gb/6",
      "interrupts, lost holders",
    ],
    ["let no key pass the jobs in front of the queue repeatedly when no other key waits for its turn", "aa/2"],
    ["wait for the retry of a job that left a line whose limit operators have removed since", "ff/130"],
    ["let two jobs that wait for their locks return to a limited key in any order", "ff/260"],
    ["let a job lose its place in line for its locks when the line of its key is full", "bb/128"],
    ["let a job that BullMQ fails without a run use up the turn of its key", "bb/159"],
    ["do not interrupt a manually retried job for jobs that were added earlier", "u/188"],
    ["let the ID of the job that superseded another belong to a later job", "v/43"],
    ["let a call settle a waiting job whose line was lost", "kk/297"],
    [
      "return a start that BullMQ 5 has counted for a job that stalled too often",
      "ci/7",
      "limited starts, stalled jobs",
    ],
    ["wait for the next timer of a line if a removed job still has the key", "ci/1", "rotation, removed jobs"],
  ] as [title: string, seed: string, focus?: Focus | string][])("%s", async (_title, seed, named) => {
    const focus = typeof named === "string" ? FOCUSES.get(named) : named;
    expect(focus === undefined).toBe(named === undefined);
    const found = await searchLanes(code, { seed, runs: 1, ...(focus === undefined ? {} : { focus }) });
    expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
  });

  it("give the same result again from their seed", async () => {
    const logs: (readonly string[])[] = [];
    for (let time = 0; time < 2; time += 1) {
      await searchLanes(code, { seed: "replay/1", runs: 1, onResult: ({ log }) => logs.push(log) });
    }
    expect(logs[1]).toEqual(logs[0]);
    expect(logs[0]?.length).toBeGreaterThan(50);
  });
});
