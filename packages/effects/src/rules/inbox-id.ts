/** Pure: the name of an effect in the inbox. */

/** The parts of a BullMQ job that together name one job. */
export interface EffectJob {
  readonly id?: string | undefined;
  /** BullMQ uses job IDs again: after a loss of data, and a custom ID once its job is removed. The time differs. */
  readonly timestamp: number;
  readonly queueQualifiedName: string;
}

/**
 * Returns the inbox ID of a job or of the caller's key, as a JSON array. Job IDs and keys may contain any separator,
 * and JSON escapes the characters that Postgres cannot store.
 */
export function inboxIdOf(effect: { readonly job: EffectJob } | { readonly key: string }, step?: string): string {
  const parts =
    "key" in effect ? ["key", effect.key] : ["job", effect.job.queueQualifiedName, effect.job.id, effect.job.timestamp];
  return JSON.stringify(step === undefined ? parts : [...parts, step]);
}
