import type { Inspection, NodeInspection } from "@x/redlock-core";
import { type CommandContext, confirmed, type IsGood, looking } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { type Cell, durationText, type Tone } from "../output.ts";
import { electionOf } from "./leader.ts";

const TONES: Readonly<Record<Inspection["verdict"], Tone>> = {
  held: "warn",
  free: "good",
  contended: "warn",
  unknown: "bad",
};

/** Shows the holder of a lock, per node and in total. */
export async function inspectLock(context: CommandContext, resource: string): Promise<IsGood> {
  const { output } = context;
  const redlock = await context.connections.redlock();
  // A leader's lock names its holder only during the first lease. Later the record of the term contains the leader's
  // ID.
  const [, name = ""] = /^leader:(.+)$/s.exec(resource) ?? [];
  const election = name === "" ? undefined : await electionOf(context, name);
  return await looking(context, async () => {
    const inspected = await redlock.inspect(resource);
    // If no quorum answers, the inspection already reports the failure.
    const leader = await election?.leader().catch(() => null);
    const inspection = { ...inspected, ...(leader ? { holder: leader.id } : {}) };
    output.answer(inspection, () => {
      const { verdict, remainingMs, holder, fencingToken, nodes } = inspection;
      const by = holder === undefined ? "" : ` by ${holder}`;
      const left = verdict === "held" ? `${by}, for ${durationText(remainingMs)} unless it is extended` : "";
      output.line(`${resource}: ${verdict}${left}`, TONES[verdict]);
      if (fencingToken !== undefined)
        output.line(`greatest fencing token of any lock on these nodes: ${fencingToken}`, "dim");
      output.table(["node", "state", "expires", "waiters", "quarantine"], nodes.map(rowOf));
      if (nodes.some(({ error = "" }) => /^(CROSSSLOT|MOVED)\b/.test(error)))
        output.line("A member of a Redis Cluster answered: add --cluster.", "warn");
    });
    return inspection.verdict !== "unknown";
  });
}

function rowOf(node: NodeInspection): readonly Cell[] {
  if (node.error !== undefined) return [node.node, { text: node.error, tone: "bad" }, "", "", ""];
  const { state = "", ttlMs = 0, waiters = 0, quarantineLeftMs = 0 } = node;
  return [
    node.node,
    state,
    state === "free" ? "" : ttlMs < 0 ? "never" : `in ${durationText(ttlMs)}`,
    waiters === 0 ? "" : String(waiters),
    quarantineLeftMs === 0 ? "" : { text: `${durationText(quarantineLeftMs)} more`, tone: "warn" },
  ];
}

/** Releases a lock by force, whichever client holds the lock. The answer is good if a quorum released a lock. */
export async function releaseLock(context: CommandContext, resource: string): Promise<IsGood> {
  const { output } = context;
  const redlock = await context.connections.redlock();
  const { verdict } = await redlock.inspect(resource);
  if (verdict === "unknown") throw new ConsoleFailure(`no quorum of nodes answered about ${resource}`);
  if (
    !(await confirmed(context, `Take ${resource} (${verdict}) away? The holder may continue to work for a moment.`))
  ) {
    return false;
  }
  const isTaken = await redlock.forceRelease(resource);
  output.answer({ resource, released: isTaken }, () => {
    output.line(isTaken ? `${resource} was taken away` : `nobody had ${resource}`, isTaken ? "good" : "warn");
  });
  return isTaken;
}
