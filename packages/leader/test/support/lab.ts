/** One lock node for the tests of a file, and elections on it that end with their test. */
import { LeaderElection, type LeaderElectionOptions, type LeaderTerm } from "@x/leader";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { LEASE, type Nodes, startNodes } from "./redis.ts";

export interface Lab {
  readonly nodes: Nodes;
  /** An election that is stopped with its test. */
  candidate(name: string, options?: Partial<LeaderElectionOptions>): LeaderElection;
}

/** Starts the node before the first test of the file that calls this, and stops it after the last. */
export function useLab(): Lab {
  let nodes: Nodes | undefined;
  let count = 0;
  const started = (): Nodes => {
    if (nodes === undefined) throw new Error("the lab's node is there only within a test");
    return nodes;
  };
  beforeAll(async () => {
    nodes = await startNodes(1);
  });
  afterAll(async () => {
    await nodes?.[Symbol.asyncDispose]();
  });
  return {
    get nodes() {
      return started();
    },
    candidate(name, options) {
      count += 1;
      const own = { name, id: `c${count}`, ...LEASE, cooldown: { initial: 10 } };
      const election = new LeaderElection(started().redlock(), { ...own, ...options });
      onTestFinished(() => election.stop({ drainTimeout: 0 }));
      return election;
    },
  };
}

/** The task of a leader that does nothing until its term ends. */
export async function untilAborted(term: LeaderTerm): Promise<void> {
  if (term.signal.aborted) return;
  await new Promise((resolve) => term.signal.addEventListener("abort", resolve, { once: true }));
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
