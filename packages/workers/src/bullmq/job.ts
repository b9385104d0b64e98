/** Converts jobs between a Redis hash, BullMQ's `Job` and a child process. */
import { type Job, raw2NextJobData } from "bullmq";

/** Returns the decoded fields from which the installed version of BullMQ creates a job. */
export function decodeJob(fields: object, jobId: string): object {
  const [decoded] = raw2NextJobData([Object.entries(fields).flat(), jobId, 0, 0]) as readonly object[];
  return decoded ?? fields;
}

/** Adds `lock` to the job that a sandboxed processor receives in its child process. */
export function passLockToSandbox(job: Job, lock: object): void {
  const asJSON = job.asJSONSandbox.bind(job);
  job.asJSONSandbox = () => Object.assign(asJSON(), { lock });
}
