/** A protocol whose states are visited, and the rules without which a run breaks a promise. */
import type { SourcePatch } from "../simulation/sources.ts";
import type { Exploration } from "./explore.ts";

export interface RemovedRule<Case> {
  readonly rule: string;
  /** Remove the rule from the code. */
  readonly patches: readonly SourcePatch[];
  /** The case in which a run breaks a promise. */
  readonly in: Case;
}

interface Protocol<Case> {
  readonly name: string;
  readonly cases: readonly Case[];
  readonly rules: readonly RemovedRule<Case>[];
  /** Visits the states of a case, up to a limit that is greater than the number of states by default. */
  readonly explore: (
    each: Case,
    options: { readonly patches?: readonly SourcePatch[]; readonly limit?: number },
  ) => Promise<Exploration>;
}

export interface Explored {
  readonly name: string;
  readonly cases: readonly {
    readonly name: string;
    /** Visits the states, up to the limit. Default: all states. */
    readonly explore: (limit?: number) => Promise<Exploration>;
  }[];
  readonly rules: readonly {
    readonly rule: string;
    /** Visits the states without the rule. */
    readonly explore: () => Promise<Exploration>;
  }[];
}

export function exploredOf<Case extends { readonly name: string }>(protocol: Protocol<Case>): Explored {
  const { name, cases, rules, explore } = protocol;
  return {
    name,
    cases: cases.map((each) => ({
      name: each.name,
      explore: async (limit) => await explore(each, limit === undefined ? {} : { limit }),
    })),
    rules: rules.map(({ rule, patches, in: each }) => ({
      rule,
      explore: async () => await explore(each, { patches }),
    })),
  };
}

/** Visits the states without this rule. */
export async function exploreWithout({ name, rules }: Explored, rule: string): Promise<Exploration> {
  const found = rules.find((each) => each.rule === rule);
  if (found === undefined) throw new RangeError(`the ${name} has no rule "${rule}"`);
  return await found.explore();
}
