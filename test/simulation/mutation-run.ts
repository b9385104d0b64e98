/** Takes one protection away and looks for the invariant that breaks. */
import { runDirected } from "./directed.ts";
import { type Engine, loadEngine } from "./engine.ts";
import { isPlayed, knownSchedule } from "./known.ts";
import type { Mutation } from "./mutations.ts";
import { runOf, search } from "./search.ts";

export interface MutationResult {
  readonly mutation: { readonly protection: string };
  /** Random schedules until the first violation; undefined: none in the budget. */
  readonly random: { readonly runs: number; readonly invariant: string } | undefined;
  /** What the directed schedule, or the schedules with a focus, found, if there are such. */
  readonly directed: { readonly name: string; readonly invariant: string | undefined } | undefined;
  /** The seed of the schedule that broke, if it is not a directed one. */
  readonly brokenBy: string | undefined;
}

export interface MutationOptions {
  readonly seed: string;
  /** Random schedules at most. */
  readonly budget: number;
  /** Takes what is known to find it, a directed schedule or a recorded one, before any search, and instead of it. */
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
    if (violation !== undefined) throw new Error(`${known} breaks with every protection in place, too`);
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

/** Of a schedule among those of its search. */
export function numberOf(seed: string): number {
  return Number(seed.split("/").at(-1));
}

export function isCaught(result: MutationResult): boolean {
  return result.random !== undefined || result.directed?.invariant !== undefined;
}
