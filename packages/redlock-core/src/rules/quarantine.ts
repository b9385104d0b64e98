/** Pure: computes how long a node that may have forgotten its keys must not vote. */
import { driftMs } from "./validity.ts";

/**
 * Returns how long a node must not vote after it may have forgotten its keys. This time covers every lease that the
 * node may have granted before. `QUARANTINE_SLACK_MS` is added for a clock that is stepped at boot.
 *
 * Mutual exclusion does not need the drift, because a client trusts a lease for its TTL minus the drift. The drift
 * keeps fencing tokens in order after a loss of data, even if the clocks of clients differ by almost `maxTtl -
 * nodeTimeout`.
 *
 * `nodeTimeout` is not added. Otherwise all clients would need the same `nodeTimeout`, and even programs of operators
 * would have to know it.
 */
export function quarantineMs(maxTtlMs: number, driftFactor: number): number {
  return maxTtlMs + driftMs(maxTtlMs, driftFactor) + QUARANTINE_SLACK_MS;
}

/**
 * Returns for how many more milliseconds a node must not vote, by the same rule as scripts/quarantine.lua.ts. The node
 * is the process `runId`, and its clock shows `nowUs`. According to the node's hash, the process `knownRunId` has owned
 * the data since `sinceUs`.
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
 * Slack for a clock that is corrected after boot. In the model, a correction of 300 ms broke mutual exclusion without
 * slack, but not with a slack of 300 ms.
 */
const QUARANTINE_SLACK_MS = 300;
