/** All theorems, in an order in which each follows from the earlier ones. */

import { prove } from "./induction.ts";
import { continuityByRightClocks, exclusionByRightClocks, invariantOf } from "./invariant.ts";
import { declarationsOf, groupedOf, namesOf, transitionOf } from "./machine.ts";
import { at, is, KEY, type Model, type ModelOptions, modelOf } from "./model.ts";
import { type RuleChange, type Rules, readRules } from "./rules.ts";
import type { Declarations, Solver } from "./solver.ts";
import { add, and, eq, ge, gt, implies, ite, le, lt, mul, not, or, type Sort, sub, type Term } from "./terms.ts";

export interface Theorem {
  readonly name: string;
  /** Whether the theorem takes so long that only `npm run prove` proves it. */
  readonly isSlow?: boolean;
  /** Returns the parts that are not proved. */
  readonly check: (solver: Solver) => Promise<readonly string[]>;
}

/** Returns the theorems for the formulas, either unchanged or with a change. */
export function theoremsOf(rules: Rules): readonly Theorem[] {
  return [
    ...ofArithmetic(rules),
    inductive("one node, any drift: it supports one attempt at a time, which is safe on it", { rules, nodes: "any" }),
    ...fromOneNodeToAny(rules),
    { ...inductive("3 nodes, drift 1 %: all theorems", { rules, nodes: 3, drift: 0.01 }), isSlow: true },
    { ...inductive("5 nodes, drift 1 %: all theorems", { rules, nodes: 5, drift: 0.01 }), isSlow: true },
    inductive("one node, no clock is right and keys vanish: the order of votes", {
      rules,
      nodes: "any",
      assume: "no clock",
    }),
    {
      ...inductive("3 nodes, no clock is right and keys vanish: tokens rise for a client that asks later, and differ", {
        ...{ rules, nodes: 3, assume: "no clock" },
      }),
      isSlow: true,
    },
    inductive("one node, drift 1 %, data lost at any time, wall clocks agree within the bound: votes are in order", {
      ...{ rules, nodes: "any", drift: 0.01, assume: "wall clocks" },
    }),
    {
      ...inductive("3 nodes, drift 1 %, data lost at any time, wall clocks agree within the bound: all theorems", {
        ...{ rules, nodes: 3, drift: 0.01, assume: "wall clocks" },
      }),
      isSlow: true,
    },
    {
      ...inductive(
        "one node, any drift, data lost at any time, wall clocks agree within the bound: votes are in order",
        {
          ...{ rules, nodes: "any", assume: "wall clocks" },
        },
      ),
      isSlow: true,
    },
    numbersOfOneNode,
  ];
}

function inductive(name: string, options: ModelOptions): Theorem {
  return {
    name,
    check: async (solver) => {
      const model = modelOf(options);
      const { failures, possible, steps } = await prove(solver, model, invariantOf(model));
      return possible === steps
        ? failures
        : [...failures, `only ${possible} of ${steps} steps were shown to be possible`];
    },
  };
}

interface Case {
  readonly what: string;
  readonly given: readonly Term[];
  readonly claim: Term;
}

/** Each case follows from the given facts. */
function follows(name: string, declarations: Declarations, cases: readonly Case[]): Theorem {
  return {
    name,
    check: async (solver) => {
      const failures: string[] = [];
      for (const { what, given, claim } of cases) {
        const { answer } = await solver.ask(declarations, [...given, not(claim)]);
        if (answer !== "unsat") failures.push(`${what}: ${answer}`);
      }
      return failures;
    },
  };
}

const reals = (...names: readonly string[]): Declarations => new Map(names.map((name) => [name, "Real"] as const));

function ofArithmetic(rules: Rules): readonly Theorem[] {
  const quorum = rules.quorumOf("N", "half");
  const integers = new Map<string, Sort>(["N", "half", "a", "b", "union"].map((name) => [name, "Int"]));
  const isDrift = and(ge("drift", "0"), lt("drift", "1"));
  const validity = rules.validityMs("ttl", "drift", "rounded");
  const quarantine = rules.quarantineMs("maxTtl", "drift", "rounded");
  const slow = sub("1", "drift");
  const bound = sub(mul(slow, sub(quarantine.value, "300")), `(/ nodeTimeout ${slow})`);
  return [
    follows("any two quorums share a node, for any number of nodes", integers, [
      {
        what: "shared",
        given: [ge("N", "1"), quorum.where, ge("a", quorum.value), ge("b", quorum.value), le("union", "N")],
        claim: gt(sub(add("a", "b"), "union"), "0"),
      },
    ]),
    follows(
      "a validity ends before the key can expire, and a quarantine after any validity",
      reals("ttl", "maxTtl", "drift", "rounded"),
      [
        {
          what: "validity",
          given: [isDrift, gt("ttl", "0"), validity.where],
          claim: le(validity.value, sub(mul(slow, "ttl"), "2")),
        },
        {
          what: "quarantine",
          given: [isDrift, gt("maxTtl", "0"), quarantine.where],
          claim: ge(sub(quarantine.value, "300"), "maxTtl"),
        },
      ],
    ),
    follows(
      "the bound for wall clocks is at least maxTtl - nodeTimeout - 2 * driftFactor * maxTtl",
      reals("maxTtl", "nodeTimeout", "drift", "rounded"),
      [
        {
          what: "bound",
          given: [isDrift, le("drift", "0.25"), gt("nodeTimeout", "0"), le("nodeTimeout", "maxTtl"), quarantine.where],
          claim: ge(bound, sub("maxTtl", "nodeTimeout", mul("2", "drift", "maxTtl"))),
        },
      ],
    ),
  ];
}

/** Two quorums share a node. A fact that is proved about one node therefore holds for all quorums. */
function fromOneNodeToAny(rules: Rules): readonly Theorem[] {
  const model = modelOf({ rules, nodes: "any" });
  const names = namesOf(model);
  const s = groupedOf(model.shape, names);
  const given = [...model.assumed, ...invariantOf(model).map(({ holds }) => holds(s))];
  const declarations = declarationsOf(model);
  const shared = at(s, "n1");
  const votes = and(shared.A.voted, shared.B.voted);
  const holders = and(implies(is(s, "A", "held"), shared.A.backs), implies(is(s, "B", "held"), shared.B.backs));
  const [exclusion, continuity, ...orders] = model.theorems;
  if (exclusion === undefined || continuity === undefined) throw new Error("the model has no theorems");
  const isExclusive = exclusionByRightClocks.holds(s);
  return [
    follows("any number of nodes, any drift: exclusion, and the order of tokens", declarations, [
      { what: exclusionByRightClocks.name, given: [...given, holders], claim: isExclusive },
      { what: exclusion.name, given: [isExclusive], claim: exclusion.holds(s) },
      ...orders.map(({ name, holds }) => ({ what: name, given: [...given, votes], claim: holds(s) })),
    ]),
    {
      name: "any number of nodes, any drift: who was granted before another never believes again",
      check: async (solver) => {
        const failures: string[] = [];
        const isKept = continuityByRightClocks.holds(s);
        for (const step of model.steps) {
          const { assertions, after, declarations: own } = transitionOf(model, step, names, "+");
          const next = groupedOf(model.shape, after);
          const known = [...given, isKept, ...assertions, exclusionByRightClocks.holds(next)];
          const all = new Map([...declarations, ...own]);
          const { answer } = await solver.ask(all, [...known, not(continuityByRightClocks.holds(next))]);
          if (answer !== "unsat") failures.push(`${step.name}: ${answer}`);
        }
        const { answer } = await solver.ask(declarations, [isKept, not(continuity.holds(s))]);
        return answer === "unsat" ? failures : [...failures, `${continuity.name}: ${answer}`];
      },
    },
    thirdAttempts(model),
  ];
}

/**
 * For A and B, a key of a third attempt is the key of another: `another` does what a third attempt does in the same way
 * as A.
 */
function thirdAttempts(model: Model): Theorem {
  const names = namesOf(model);
  const s = groupedOf(model.shape, names);
  const seen = new Map(names).set("nodes.n1.key", ite(eq("nodes.n1.key", KEY.A), KEY.another, "nodes.n1.key"));
  const pairs = [
    ["n1 grants A", "n1 grants another"],
    ["n1 repairs A", "n1 grants another"],
    ["n1 extends A", "n1 extends another"],
    ["n1 extends A by an old request", "n1 extends another"],
    ["n1 releases A", "n1 releases another"],
  ] as const;
  const stepOf = (name: string): Model["steps"][number] => {
    const step = model.steps.find((each) => each.name === name);
    if (step === undefined) throw new Error(`no step ${name}`);
    return step;
  };
  const draws = { life: "draw.life", register: "draw.register" };
  const cases = pairs.map(([own, others]): Case => {
    const after = { ...at(s, "n1"), ...stepOf(own).next(s, draws).nodes?.["n1"] };
    const drawn = { life: after.life ?? "", register: after.register ?? "" };
    const before = groupedOf(model.shape, seen);
    const another = { ...at(before, "n1"), ...stepOf(others).next(before, drawn).nodes?.["n1"] };
    const key = ite(eq(after.key ?? "", KEY.A), KEY.another, after.key ?? "");
    const same = [eq(key, another.key ?? ""), eq(after.life ?? "", another.life ?? "")];
    return {
      what: own,
      given: [...model.assumed, ...stepOf(own).when(s, draws)],
      claim: and(...stepOf(others).when(before, drawn), ...same, eq(after.register ?? "", another.register ?? "")),
    };
  });
  const declarations = new Map([...declarationsOf(model), ["draw.life", "Real" as const]]);
  return follows("whatever a third attempt does on a node, `another` does", declarations, cases);
}

/**
 * A single node numbers its grants: above the last number, above the client's previous number, and at least its time.
 */
const numbersOfOneNode: Theorem = (() => {
  // scripts/number.lua.ts
  const next = add("last", "1");
  const number = ite(and(ge(next, "seen"), ge(next, "clock")), next, ite(ge("seen", "clock"), "seen", "clock"));
  const isKnown = or(le("greatest", "last"), lt("greatest", "clock"));
  const names = ["last", "seen", "clock", "later", "greatest", "old"];
  return follows(
    "one node alone: numbers rise with the grants, and over a loss of data if its clock has passed the last number",
    new Map(names.map((name) => [name, "Int" as const])),
    [
      { what: "grant", given: [isKnown, ge("last", "0"), ge("seen", "0")], claim: gt(number, "greatest") },
      {
        what: "time",
        given: [isKnown, ge("later", "clock")],
        claim: or(le("greatest", "last"), lt("greatest", "later")),
      },
      {
        what: "loss",
        given: [isKnown, ge("old", "0"), lt("greatest", "later")],
        claim: or(le("greatest", "old"), lt("greatest", "later")),
      },
    ],
  );
})();

/**
 * Changes of the formulas in packages/redlock-core/src/rules, and whether everything is still proved with the change.
 */
export const CHANGES: readonly (RuleChange & { readonly name: string; readonly isProved?: boolean })[] = [
  ...[
    { name: "no drift", replace: "return EXPIRY_RESOLUTION_MS;" },
    { name: "half of the drift", replace: "return Math.ceil(ttlMs * driftFactor * 0.5) + EXPIRY_RESOLUTION_MS;" },
    { name: "the drift rounded down", replace: "return Math.floor(ttlMs * driftFactor) + EXPIRY_RESOLUTION_MS;" },
    { name: "no resolution of expiries", replace: "return Math.ceil(ttlMs * driftFactor);" },
  ].map((each) => ({
    ...{ ...each, file: "validity.ts" as const },
    find: "return Math.ceil(ttlMs * driftFactor) + EXPIRY_RESOLUTION_MS;",
  })),
  ...[
    { name: "a quarantine without slack", replace: "return maxTtlMs + driftMs(maxTtlMs, driftFactor);" },
    { name: "a quarantine of maxTtl + 297", replace: "return maxTtlMs + QUARANTINE_SLACK_MS - 3;" },
    // The drift is needed for the order of tokens over a loss of data: see rules/quarantine.ts.
    { name: "a quarantine without drift", replace: "return maxTtlMs + QUARANTINE_SLACK_MS;", isProved: true },
  ].map((each) => ({
    ...{ ...each, file: "quarantine.ts" as const },
    find: "return maxTtlMs + driftMs(maxTtlMs, driftFactor) + QUARANTINE_SLACK_MS;",
  })),
  {
    ...{ name: "half of the nodes as quorum", file: "quorum.ts", find: "return Math.floor(nodeCount / 2) + 1;" },
    replace: "return Math.floor(nodeCount / 2);",
  },
];

/** Proves everything that depends on the changed formula. Returns whether everything is proved. */
export async function isProvedWith(solver: Solver, change: RuleChange): Promise<boolean> {
  const rules = readRules(change);
  const [quorum] = ofArithmetic(rules);
  if ((await quorum?.check(solver))?.length !== 0) return false;
  const model = modelOf({ rules, nodes: "any", drift: 0.01 });
  const { failures } = await prove(solver, model, invariantOf(model), { stopsEarly: true });
  return failures.length === 0;
}
