/** Pure: the fields of a job's hash that exist only while the job is parked. */
import { BULL, JOB } from "../../scripts/rules/job-fields.ts";

/** Returns the hash of a parked job, given as names and values in turn, without the fields that parking has added. */
export function withoutParkingFields(flat: readonly string[]): Readonly<Record<string, string>> {
  const hash: Record<string, string> = {};
  for (let i = 0; i + 1 < flat.length; i += 2) hash[String(flat[i])] = String(flat[i + 1]);
  for (const name of [JOB.place, JOB.parkedAt, BULL.processedBy]) delete hash[name];
  return hash;
}
