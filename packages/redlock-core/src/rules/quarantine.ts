/** Pure: how long a node casts no vote that may have forgotten its keys. */
import { driftMs } from "./validity.ts";

/**
 * Returns how long a node that may have forgotten its keys casts no vote. That covers every lease that it may have
 * granted before. `QUARANTINE_SLACK_MS` is added for a clock that is stepped at boot.
 *
 * Exclusion does not need the drift, because a client trusts a lease for its TTL minus the drift. The drift keeps
 * fencing tokens in order over a loss of data: clocks of clients may then differ by almost `maxTtl - nodeTimeout`.
 *
 * `nodeTimeout` is not added. Otherwise all clients would need the same one, and even programs of operators would have
 * to know it.
 */
export function quarantineMs(maxTtlMs: number, driftFactor: number): number {
  return maxTtlMs + driftMs(maxTtlMs, driftFactor) + QUARANTINE_SLACK_MS;
}

/**
 * Returns for how many milliseconds more a node casts no vote, as scripts/quarantine.lua.ts does. The node is the
 * process `runId`, and its clock shows `nowUs`. By its hash, the data is in the hands of `knownRunId` since `sinceUs`.
 */
export function quarantineLeftMs(
  wholeMs: number,
  node: {
    readonly nowUs: number;
    readonly runId: string | undefined;
    readonly knownRunId: string | undefined;
    readonly sinceUs: number;
  },
): number {
  const ageMs = (node.nowUs - node.sinceUs) / 1_000;
  const isKnown = node.runId === node.knownRunId && ageMs >= 0;
  return Math.max(0, Math.ceil(isKnown ? wholeMs - ageMs : wholeMs));
}

/**
 * The model had a clock that is corrected by 300 ms after boot. It broke at a slack of 0, and held at the size of the
 * step.
 */
const QUARANTINE_SLACK_MS = 300;
