/** The self-test: runs all phases under a prefix that is used once, and removes the keys afterwards. */
import { randomBytes } from "node:crypto";
import { systemClock } from "@x/redlock-core";
import { Cluster, type Redis } from "ioredis";
import { PHASES } from "./phases.ts";
import { BrokenPromise, Stage, type StageSettings } from "./stage.ts";

export interface PhaseResult {
  readonly phase: string;
  readonly seconds: number;
  /** The promise that was broken. Null if the phase has passed. */
  readonly fault: string | null;
}

/**
 * Runs the phases one after the other, by default all. Calls `onResult` after each. Rejects with the reason of `signal`
 * if it aborts.
 */
export async function runSelfTest(
  { phases, ...settings }: Omit<StageSettings, "prefix"> & { readonly phases?: readonly string[] | undefined },
  onResult: (result: PhaseResult) => void,
): Promise<readonly PhaseResult[]> {
  const prefix = `{x-self-test-${randomBytes(6).toString("hex")}}`;
  const results: PhaseResult[] = [];
  try {
    for (const [index, { name, run }] of PHASES.entries()) {
      if (phases?.includes(name) === false) continue;
      const startMs = systemClock.monotonicMs();
      const fault = await faultOf(new Stage(`phase-${index}`, { ...settings, prefix }), run);
      const result = { phase: name, seconds: (systemClock.monotonicMs() - startMs) / 1_000, fault };
      results.push(result);
      onResult(result);
    }
  } finally {
    await removeKeys(settings.client, prefix);
  }
  return results;
}

async function faultOf(stage: Stage, run: (stage: Stage) => Promise<void>): Promise<string | null> {
  try {
    await run(stage);
    return null;
  } catch (error) {
    if (error instanceof BrokenPromise) return error.message;
    // A script that fails is a fault of the texts. A signal that aborts is none.
    if (error instanceof Error && error.name !== "AbortError") return `${error.name}: ${error.message}`;
    throw error;
  } finally {
    await stage.end();
  }
}

const PAGE = 1_000;

async function removeKeys(client: Redis | Cluster, prefix: string): Promise<void> {
  const nodes = client instanceof Cluster ? client.nodes("master") : [client];
  for (const node of nodes) {
    let cursor = "0";
    do {
      const [next, keys] = await node.scan(cursor, "MATCH", `*${prefix}*`, "COUNT", PAGE);
      // The keys have one hash tag, so one command may name them all.
      if (keys.length > 0) await client.unlink(...keys);
      cursor = next;
    } while (cursor !== "0");
  }
}
