/**
 * What happens, as messages on `node:diagnostics_channel`: `x.workers.park`, `.lock`, `.yield`, `.wake`, `.release`, `.lost`,
 * `.stale`, `.pause`, `.resume`. Messages are built only if somebody listens. An error of a listener is its own: Node throws it as
 * an uncaught exception, in a turn of its own.
 */
import { type Channel, channel } from "node:diagnostics_channel";

interface AboutJob {
  readonly queue: string;
  readonly jobId: string;
  readonly keys: readonly string[];
}

export interface WorkerMessages {
  /** Jobs whose key was busy were parked by one fetch. */
  park: { readonly queue: string; readonly jobs: number };
  /** A job got the locks of its keys. */
  lock: AboutJob & { readonly fencingToken: number; readonly waitMs: number };
  /** A job went back to `delayed` because plain code, or nobody reachable, has its lock. */
  yield: AboutJob & { readonly reason: "held" | "unreachable"; readonly delayMs: number };
  /** Such a job was brought back because its lock was released. */
  wake: AboutJob;
  /** A job's processor ended and its locks were released. `confirmed`: they were ours until then. */
  release: AboutJob & { readonly fencingToken: number; readonly heldMs: number; readonly confirmed: boolean };
  /** A running job lost BullMQ's lock or a lock of its keys; its signal was aborted. */
  lost: AboutJob & { readonly error: Error };
  /** A job was not started because its fetch was too long ago and another worker may have it. */
  stale: AboutJob & { readonly ageMs: number };
  /** An operator paused or resumed a key. */
  pause: { readonly queue: string; readonly key: string; readonly reason: string };
  resume: { readonly queue: string; readonly key: string };
}

export function aboutJob(queue: string, { jobId, keys }: Omit<AboutJob, "queue">): AboutJob {
  return { queue, jobId, keys };
}

type Name = keyof WorkerMessages;

const names: readonly Name[] = ["park", "lock", "yield", "wake", "release", "lost", "stale", "pause", "resume"];
const channels = Object.fromEntries(names.map((name) => [name, channel(`x.workers.${name}`)])) as Record<Name, Channel>;

export function tell<N extends Name>(name: N, message: () => WorkerMessages[N]): void {
  if (channels[name].hasSubscribers) channels[name].publish(message());
}
