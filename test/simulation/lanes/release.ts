/** The installed release of BullMQ, and the differences between the supported releases. */
import { createRequire } from "node:module";
import type { Job } from "bullmq";
import type { BullScript } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import { chosenBullMQ } from "../../support/bullmq-release.ts";
import type { LaneData } from "./setting.ts";

/** The BullMQ of the lock file, or the release that `X_BULLMQ` chooses. */
export const installed = createRequire(import.meta.url)(chosenBullMQ ?? "bullmq") as typeof import("bullmq");

export interface Release {
  /**
   * Whether the command that delays a job until its retry also fetches the worker's next job. Before BullMQ 5.73.3 the
   * command only delays the job, and BullMQ's loop fetches afterwards.
   */
  readonly isDelayFetching: boolean;
  /** Whether the queue's limiter counts the starts of jobs that stalled too often, as in BullMQ 5. */
  readonly countsFailedStarts: boolean;
}

export function releaseOf({ moveToDelayed, moveToActive }: Readonly<Record<string, BullScript>>): Release {
  return {
    isDelayFetching: moveToDelayed?.lua.includes("fetchNextJob(") === true,
    countsFailedStarts: moveToActive?.lua.includes("isDeferredFailure") === false,
  };
}

type Fetch = (token: string, options: { readonly block: false }) => Promise<Job<LaneData> | undefined>;

export interface FetchingWorker {
  readonly getNextJob: Fetch;
  /** Missing in releases whose `getNextJob()` returns the jobs that stalled too often, instead of failing them. */
  readonly getTracedNextJob?: Fetch;
}

/** Fetches a job as BullMQ's loop does. The loop also receives jobs that stalled too often. */
export async function fetchAsLoop(worker: FetchingWorker, token: string): Promise<Job<LaneData> | undefined> {
  if (worker.getTracedNextJob === undefined) return await worker.getNextJob(token, { block: false });
  return await worker.getTracedNextJob(token, { block: false });
}
