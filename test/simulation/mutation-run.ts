/** Takes one protection away and looks for the invariant that breaks. */
import { runDirected } from "./directed.ts";
import { loadEngine } from "./engine.ts";
import type { Mutation } from "./mutations.ts";
import { search } from "./search.ts";

export interface MutationResult {
  readonly mutation: { readonly protection: string };
  /** Random schedules until the first violation; undefined: none in the budget. */
  readonly random: { readonly runs: number; readonly invariant: string } | undefined;
  /** What the directed schedule, or the schedules with a focus, found, if there are such. */
  readonly directed: { readonly name: string; readonly invariant: string | undefined } | undefined;
}

/** `budget`: random schedules at most; they are left out where a directed schedule has found it and `quick` is set. */
export async function runMutation(
  mutation: Mutation,
  options: { readonly seed: string; readonly budget: number; readonly quick: boolean },
): Promise<MutationResult> {
  const engine = await loadEngine(mutation.patches);
  const story = mutation.directed === undefined ? undefined : await runDirected(engine, mutation.directed);
  const isFound = story?.violation !== undefined;
  const found =
    options.quick && isFound
      ? undefined
      : await search(engine, { seed: options.seed, runs: options.budget, subject: mutation.subject ?? "locks" });
  const first = found?.violations[0];
  return {
    mutation,
    random:
      first?.result.violation === undefined
        ? undefined
        : { runs: first.run, invariant: first.result.violation.invariant },
    directed: story === undefined ? undefined : { name: story.seed, invariant: story.violation?.invariant },
  };
}

export function isCaught(result: MutationResult): boolean {
  return result.random !== undefined || result.directed?.invariant !== undefined;
}
