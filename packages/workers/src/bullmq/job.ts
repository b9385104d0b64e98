/** A job as BullMQ makes it of a hash, hands it out, and passes it on to a child process. */
import { type Job, raw2NextJobData } from "bullmq";

/** Returns what BullMQ makes a job of, for the hash of a job: that differs between its versions. */
export function decodeJob(fields: object, jobId: string): object {
  const [decoded] = raw2NextJobData([Object.entries(fields).flat(), jobId, 0, 0]) as readonly object[];
  return decoded ?? fields;
}

/** Gives these facts to the child process of a sandboxed processor, as `job.lock`. */
export function tellSandbox(job: Job, lock: object): void {
  const asJSON = job.asJSONSandbox.bind(job);
  job.asJSONSandbox = () => Object.assign(asJSON(), { lock });
}
