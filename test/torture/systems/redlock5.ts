import { createRequire } from "node:module";
import { Redis } from "ioredis";
import type { LockSystem } from "./system.ts";

type Redlock5 = new (
  clients: readonly Redis[],
) => {
  on(event: "error", listener: () => void): unknown;
  using(
    resources: readonly string[],
    durationMs: number,
    routine: (signal: AbortSignal) => Promise<void>,
  ): Promise<unknown>;
};

// The types of redlock 5 do not resolve here.
const { default: NodeRedlock } = createRequire(import.meta.url)("redlock") as { readonly default: Redlock5 };

export const system: LockSystem = {
  kind: "locks",
  package: "redlock",
  title: "redlock 5",
  configuration: `new Redlock([new Redis(…), new Redis(…), new Redis(…)])  // the defaults
redlock.using([key], lease, async (signal) => …)`,
  question: "`signal.aborted`",
  promises:
    "Documents exclusivity of a resource over a duration of time, and a signal that is aborted when an extension has failed. Offers no fencing tokens.",
  open: (nodes, leaseMs) => {
    const redlock = new NodeRedlock(nodes.map(({ host, port }) => new Redis(port, host).on("error", () => undefined)));
    redlock.on("error", () => undefined);
    return (key, work) => redlock.using([key], leaseMs, (signal) => work({ isHeld: () => !signal.aborted }));
  },
};
