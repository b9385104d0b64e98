/** The lock protocol is proved, and the proof has power: it needs each protection, and notices a changed formula. */
import { afterAll, describe, expect, it } from "vitest";
import { MUTATIONS } from "../simulation/mutations.ts";
import { ATTACKS, isNeeded, play } from "./attacks.ts";
import { prove } from "./induction.ts";
import { invariantOf } from "./invariant.ts";
import { modelOf } from "./model.ts";
import { PROTECTIONS } from "./protections.ts";
import { readRules } from "./rules.ts";
import { Solver } from "./solver.ts";
import { CHANGES, isProvedWith, theoremsOf } from "./theorems.ts";
import { isNoticed, trace } from "./trace.ts";
import { NOTICED, OUTSIDE } from "./traced.ts";

const rules = readRules();
const solver = new Solver();
afterAll(() => solver[Symbol.asyncDispose]());

/** This rule is a second line of defense. lock/extend.ts explains its purpose. */
const NOT_NEEDED = "a repaired node does not count";

describe("the proof", () => {
  const theorems = theoremsOf(rules).filter(({ isSlow }) => isSlow !== true);
  it.each(theorems.map((each) => [each.name, each] as const))("proves: %s", async (_name, { check }) => {
    expect(await check(solver)).toEqual([]);
  });

  it("needs every protection except one", () => {
    const attacked = new Set<string>(ATTACKS.map(({ without }) => without));
    expect(Object.keys(PROTECTIONS).filter((name) => !attacked.has(name))).toEqual([NOT_NEEDED]);
  });

  it("holds even if a repaired node counts", async () => {
    const model = modelOf({ rules, nodes: 1, drift: 0.01, without: NOT_NEEDED });
    const { failures } = await prove(solver, model, invariantOf(model), { stopsEarly: true });
    expect(failures).toEqual([]);
  });

  it.each(ATTACKS.map((attack) => [attack.without, attack] as const))("needs: %s", async (_without, attack) => {
    const broken = await play(solver, attack, { rules });
    const kept = await play(solver, attack, { rules, isRemoved: false });
    expect([broken.answer, kept.answer]).toEqual(["sat", "unsat"]);
    expect(await isNeeded(solver, attack, rules)).toBe(true);
  });

  it.each(CHANGES.map((change) => [change.name, change] as const))(
    "depends on the formulas in the code: %s",
    async (_name, change) => {
      expect(await isProvedWith(solver, change)).toBe(change.isProved === true);
    },
  );

  it("holds up to a known difference between the wall clocks of clients", async () => {
    const attack = ATTACKS.find(({ without }) => without === "wall clocks that agree");
    if (attack === undefined) throw new Error("no attack");
    // (1 - d)(D - 300) - nodeTimeout / (1 - d), where D - 300 is maxTtl + drift: 10,102 ms, rounded up by less than one
    const bound = 0.99 * 10_102 - 500 / 0.99;
    const just = async (skew: number): Promise<string> =>
      (await play(solver, attack, { rules, given: [`(<= skew ${skew})`] })).answer;
    expect([await just(bound - 1), await just(bound + 60)]).toEqual(["unsat", "sat"]);
  });
});

describe("the comparison of traces with the model", () => {
  it.each([
    [3, 12],
    [5, 3],
  ])("accepts the steps of the code on %i nodes as steps of the model", async (nodeCount, runs) => {
    const { problems, steps } = await trace({ seed: "trace", runs, nodeCount });
    expect([...problems]).toEqual([]);
    expect(steps.get("A has a quorum: granted")).toBeGreaterThan(10);
    expect(steps.get("n1 repairs A")).toBeGreaterThan(0);
  });

  it("covers each lock mutation, or names it as outside the model", () => {
    const ofLocks = MUTATIONS.filter(({ subject = "locks" }) => subject === "locks");
    const names = ofLocks.map(({ protection }) => protection);
    expect([...Object.keys(NOTICED), ...Object.keys(OUTSIDE)].toSorted()).toEqual(names.toSorted());
  });

  // `npm run prove` runs all mutations.
  it.each(["drift margin", "lock check", "token compare"])("detects the mutation: %s", async (name) => {
    expect(await isNoticed(name)).toBe(true);
  });
});
