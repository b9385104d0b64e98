/** Pure: why a queue must not be changed between exclusive and watched. */
import type { ExclusionMode } from "./exclusion.ts";
import { findingsOf, placesOf, type WorkerSetup } from "./worker-setup.ts";

/** The facts from which the obstacles to a change are derived. */
export interface FleetOfQueue {
  /** The setups of the running `ExclusiveWorker`s. */
  readonly setups: readonly WorkerSetup[];
  /** IDs of jobs that run in other workers. */
  readonly strays: readonly string[];
  /** Number of connected workers of any kind. */
  readonly connected: number;
}

/** Returns why a queue must not be changed to `mode` now. */
export function obstaclesTo(mode: ExclusionMode, { setups, strays, connected }: FleetOfQueue): string[] {
  const found: string[] = [];
  const old = placesOf(setups.filter(({ watches }) => watches === undefined));
  if (old.length > 0) found.push(`${listed(old)}: the version of this worker does not know the modes of a queue`);
  if (mode === "watch") {
    const merging = placesOf(setups.filter(({ watches }) => watches === false));
    if (merging.length > 0) found.push(`${listed(merging)}: with whenBusy "merge", this worker is always exclusive`);
    return found;
  }
  const errors = findingsOf(setups, strays).filter(({ severity }) => severity === "error");
  found.push(...errors.map(({ message }) => message));
  const others = connected - setups.length;
  if (others > 0) {
    const subject = others === 1 ? "1 connected worker is" : `${others} connected workers are`;
    found.push(`${subject} not an ExclusiveWorker, or started or closed a moment ago`);
  }
  return found;
}

/** Returns the first names of a list as text. */
function listed(names: readonly string[]): string {
  return names.length > 5 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", ");
}
