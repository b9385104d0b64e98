/** Takes one protection of the lane away and looks for the invariant that breaks. */
import type { MutationResult } from "../mutation-run.ts";
import { loadLanes } from "./load.ts";
import type { LaneMutation } from "./mutations.ts";
import { searchLanes } from "./search.ts";

/** `budget`: random schedules at most; they are left out where the mutation has a focus and `quick` is set. */
export async function runLaneMutation(
  mutation: LaneMutation,
  options: { readonly seed: string; readonly budget: number; readonly quick: boolean },
): Promise<MutationResult> {
  const { seed, budget, quick } = options;
  const { focus } = mutation;
  const code = await loadLanes(mutation.patches);
  const focused = focus === undefined ? undefined : await searchLanes(code, { seed, runs: budget, focus });
  const drawn = quick && focus !== undefined ? undefined : await searchLanes(code, { seed, runs: budget });
  const first = drawn?.violation?.violation;
  return {
    mutation,
    random: drawn === undefined || first === undefined ? undefined : { runs: drawn.runs, invariant: first.invariant },
    directed:
      focus === undefined || focused === undefined
        ? undefined
        : { name: `${focus.name}, ${focused.runs}`, invariant: focused.violation?.violation?.invariant },
  };
}
