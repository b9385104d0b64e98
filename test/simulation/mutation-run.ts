/** Removes one protection and looks for the invariant that breaks. */
import { runDirected } from "./directed.ts";
import { type Engine, loadEngine } from "./engine.ts";
import { isPlayed, knownSchedule } from "./known.ts";
import type { Mutation } from "./mutations.ts";
import { runOf, search } from "./search.ts";

export interface MutationResult {
  readonly mutation: { readonly protection: string };
  /** Number of random schedules until the first violation. Undefined if no schedule of the budget broke. */
  readonly random: { readonly runs: number; readonly invariant: string } | undefined;
  /** Result of the directed schedule, or of the schedules with a focus. Undefined if the mutation has neither. */
  readonly directed: { readonly name: string; readonly invariant: string | undefined } | undefined;
  /** Seed of the schedule that broke. Undefined for a directed schedule. */
  readonly brokenBy: string | undefined;
}

export interface MutationOptions {
  readonly seed: string;
  /** The greatest number of random schedules. */
  readonly budget: number;
  /** Whether to play the directed or recorded schedule first, and to search only if it does not break. */
  readonly quick: boolean;
}

let intact: Promise<Engine> | undefined;

export async function runMutation(mutation: Mutation, options: MutationOptions): Promise<MutationResult> {
  const engine = await loadEngine(mutation.patches);
  const story = mutation.directed === undefined ? undefined : await runDirected(engine, mutation.directed);
  const isFound = story?.violation !== undefined;
  const { seed, budget: runs } = options;
  const { subject = "locks", nodeCount } = mutation;
  const known = options.quick && !isFound ? knownSchedule(mutation.protection, seed) : undefined;
  const replayed = known === undefined ? undefined : await search(engine, { seed: known, runs: 1, subject, nodeCount });
  if (
    known !== undefined &&
    replayed?.violations.length === 1 &&
    (nodeCount !== undefined || !isPlayed(known, subject))
  ) {
    intact ??= loadEngine();
    const { violation } = await runOf[subject](await intact, known, { nodeCount });
    if (violation !== undefined) throw new Error(`${known} breaks even with every protection in place`);
  }
  const isKnown = replayed?.violations.length === 1;
  const isSearched = !isKnown && !(options.quick && isFound);
  const found = isSearched ? await search(engine, { seed, runs, subject, nodeCount }) : replayed;
  const first = found?.violations[0]?.result;
  return {
    mutation,
    random:
      first?.violation === undefined ? undefined : { runs: numberOf(first.seed), invariant: first.violation.invariant },
    directed: story === undefined ? undefined : { name: story.seed, invariant: story.violation?.invariant },
    brokenBy: first?.seed,
  };
}

/** Returns the number of a schedule within its search. */
export function numberOf(seed: string): number {
  return Number(seed.split("/").at(-1));
}

export function isCaught(result: MutationResult): boolean {
  return result.random !== undefined || result.directed?.invariant !== undefined;
}
