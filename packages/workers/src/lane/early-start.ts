/** This is what the lane knows of a run that begins before its job was handed out. */
import type { Instant } from "@x/redlock-core/protocol";
import type { Job } from "../bullmq/public.ts";
import type { Run } from "../job-run/run.ts";

/** The run of a key's next job, which may begin when the end of the job before is on its way. */
export interface EarlyStart {
  readonly jobId: string;
  /** The token of the key's lock, which the job before has had. */
  readonly lockToken: string;
  readonly fencingToken: number;
  /** Resolves when the job was handed out to this run; with the reason if it was not. Never rejects. */
  readonly answered: Promise<Error | undefined>;
  /** The end of the job before is on its way. Never throws. */
  begin(): void;
  /** It does not begin: the job before has not completed, or nothing is to follow it. */
  decline(): void;
  /** The job was handed out, by a command that was sent then. Returns false if its run does not count any more. */
  confirm(sent: Instant): boolean;
  /** It has begun, and its job was not handed out. */
  refuse(): void;
  /** Returns the run to whoever is to end its job, once. */
  claim(): EarlyClaim | undefined;
  /** Returns the job that is run, with what its fetch told. */
  jobFrom(fresh: Job): Job;
}

export interface EarlyClaim {
  readonly run: Run;
  readonly result: Promise<unknown>;
}
