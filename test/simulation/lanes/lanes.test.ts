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
    ["expect a LIFO job that is retried by hand in front, as BullMQ puts it there", "hostile-b/59"],
    [
      "let a parked job pass one that was put in front before, when its timer has fired and its key is passed on",
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
    ["let a limited job of a lost line wait for the end of the limit, though that is lifted", "p/26"],
    [
      "let a job that was handed out go on before one that came back from waiting for its lock to a limited key",
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
      "let a job that was chosen and goes back stay behind one that waits for its lock, when the key is limited",
      "fb/12",
      "policies of keys, pauses",
    ],
    ["give a call as many as it may have behind those that are gone", "fb/6", "merged calls"],
    ["wake a job that has lost its key and was given it again", "gb/15", "lost while yielding"],
    ["let a turn that has begun have as many starts as it had then", "gb/14", "rotation, weights that operators say"],
    [
      "let a job that backs off without its key go before one that has backed off with it",
      "gb/6",
      "interrupts, lost holders",
    ],
    ["let no key pass those in front of the queue again and again, when no other key waits for its turn", "aa/2"],
    ["wait for the retry of a job that left a line which operators have lifted the limit of since", "ff/130"],
    ["let two jobs that wait for their locks come back to a limited key in any order", "ff/260"],
    ["know that a job loses its place in line for its locks when its line is full", "bb/128"],
    ["know that a job which BullMQ fails unrun uses up the turn of its key", "bb/159"],
    ["expect no interrupt of a job that is retried by hand for those that came before", "u/188"],
    ["know of a job that was superseded that the newer one's id may be another job's by now", "v/43"],
    ["let a call settle a job whose line was lost, which waits still", "kk/297"],
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
