/** Pure: computes the keys of a stored job with the key function of the user. */
import { messageOf } from "@x/redlock-core/kit";
import type { UnknownKeyJob } from "../scripts/command-replies.ts";
import { type Pin, pinOfValue } from "./entity-key.ts";

/** A stored job, as it is passed to the key function. */
export interface StoredJob<Data = unknown, Name extends string = string> {
  readonly id: string;
  readonly name: Name;
  readonly data: Data;
  /** When the job was added, in ms since the epoch. */
  readonly timestamp: number;
  readonly priority: number;
  readonly parentKey: string | undefined;
}

export type KeyFunction = (job: StoredJob) => unknown;

/** Returns the keys of a job. A key function that throws makes the keys unusable. */
export function pinOfJob(job: UnknownKeyJob, keyOf: KeyFunction): Pin {
  let data: unknown;
  try {
    data = JSON.parse(job.data);
  } catch {
    return { kind: "fault", fault: "cannot be found: the job's data is not JSON" };
  }
  try {
    return pinOfValue(keyOf({ ...job, data }));
  } catch (error) {
    return { kind: "fault", fault: `function threw: ${messageOf(error).slice(0, 500)}` };
  }
}
