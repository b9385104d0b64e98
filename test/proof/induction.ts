/**
 * Proof by induction: every start has the invariant, and no step leads from a state with the invariant to a state
 * without it.
 */
import { type Claim, declarationsOf, groupedOf, type Machine, namesOf, startOf, transitionOf } from "./machine.ts";
import type { Declarations, Solver } from "./solver.ts";
import { and, eq, not, type Term } from "./terms.ts";

export interface Proof {
  /** The steps and claims that are not proved. Empty if everything is proved. */
  readonly failures: readonly string[];
  /** Number of steps that are possible in a state with the invariant. */
  readonly possible: number;
  readonly steps: number;
  readonly claims: number;
}

/** With `stopsEarly` the proof ends at the first failure, and does not ask which steps are possible. */
export async function prove<S>(
  solver: Solver,
  machine: Machine<S>,
  claims: readonly Claim<S>[],
  { stopsEarly = false }: { readonly stopsEarly?: boolean } = {},
): Promise<Proof> {
  const failures: string[] = [];
  const before = namesOf(machine);
  const names = declarationsOf(machine);
  const state = groupedOf(machine.shape, before);
  const known = claims.map(({ holds }) => holds(state));
  /** A single drift is enough to show that a step is possible, and is found faster than an arbitrary drift. */
  const example = machine.constants.includes("drift") ? [eq("drift", "0.01")] : [];

  /** Asks for all claims together, and one after the other if this is not proved. */
  const check = async (what: string, declarations: Declarations, given: readonly Term[], after: readonly Term[]) => {
    const changed = claims.map(({ name }, index) => ({ name, term: after[index] ?? "" }));
    const open = changed.filter(({ term }) => !given.includes(term));
    const whole = await solver.ask(declarations, [...given, not(and(...open.map(({ term }) => term)))]);
    if (whole.answer === "unsat") return;
    if (stopsEarly) failures.push(what);
    for (const { name, term } of stopsEarly ? [] : open) {
      const { answer } = await solver.ask(declarations, [...given, not(term)]);
      if (answer !== "unsat") failures.push(`${what}: ${name} (${answer})`);
    }
  };

  // From a contradiction everything would follow.
  const consistent = await solver.ask(names, [...machine.assumed, ...known, ...example]);
  if (consistent.answer !== "sat") failures.push(`the assumptions and the invariant: ${consistent.answer}`);
  await check("start", names, [...machine.assumed, ...startOf(machine, before)], known);
  let possible = 0;
  for (const step of machine.steps) {
    if (stopsEarly && failures.length > 0) break;
    const { assertions, after, declarations } = transitionOf(machine, step, before, "+");
    const given = [...machine.assumed, ...known, ...assertions];
    const all = new Map([...names, ...declarations]);
    if (!stopsEarly) {
      const { answer } = await solver.ask(all, [...given, ...example]);
      if (answer === "unsat") failures.push(`${step.name} can never happen`);
      if (answer === "sat") possible += 1;
    }
    const next = groupedOf(machine.shape, after);
    await check(
      step.name,
      all,
      given,
      claims.map(({ holds }) => holds(next)),
    );
  }
  return { failures, possible, steps: machine.steps.length, claims: claims.length };
}
