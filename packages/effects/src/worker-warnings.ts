/**
 * Warns of options of a job's worker under which `once` cannot keep its promise, or handlers wait for each other.
 * BullMQ has no public way from a job to the worker; if the internals of BullMQ change, nothing is warned of.
 */
import { quote } from "@x/redlock-core/kit";

interface WorkerOptions {
  readonly concurrency?: unknown;
  readonly maxStalledCount?: unknown;
}

/** BullMQ's default of `maxStalledCount`. */
const DEFAULT_STALLS = 1;

const seen = new WeakSet<object>();

/** Emits process warnings about the worker of a job, once for each worker. `size` is the pool's limit, if known. */
export function warnOfWorker(job: object, size: number | undefined): void {
  const { queue } = job as { readonly queue?: { readonly name?: unknown; readonly opts?: WorkerOptions } };
  if (typeof queue !== "object" || queue === null || seen.has(queue)) return;
  seen.add(queue);
  const { concurrency, maxStalledCount = DEFAULT_STALLS } = queue.opts ?? {};
  // Only workers have this option.
  if (typeof concurrency !== "number") return;
  const warn = (code: string, message: string): void =>
    process.emitWarning(`queue ${quote(String(queue.name))}: ${message}`, { code, type: "EffectsWarning" });
  if (size !== undefined && size < concurrency) {
    warn(
      "X_EFFECTS_POOL",
      `its worker runs ${concurrency} jobs at a time with a pool of ${size} connections: each call of once needs one, and a handler that asks the pool for a second may wait forever`,
    );
  }
  if (typeof maxStalledCount === "number" && maxStalledCount <= DEFAULT_STALLS) {
    warn(
      "X_EFFECTS_STALLS",
      `maxStalledCount is ${maxStalledCount}: a job whose worker dies more often ends as failed, even if its effect is committed. Set a high number, such as 1000`,
    );
  }
}
