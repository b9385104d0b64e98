/**
 * This entry is node-redlock 5 on the engine of `@x/redlock-core`. It has the class, methods, option names, defaults
 * and error classes of `redlock` 5.0.0-beta.2. A migration is one changed import:
 *
 * ```ts
 * import Redlock, { ExecutionError, ResourceLockedError } from "@x/node-redlock";
 * ```
 *
 * Locks exclude, and are excluded by, those of node-redlock 4 and 5 and of the core on the same keys. While too few
 * clients are connected, `acquire` waits as long as their offline queues do.
 *
 * It differs from node-redlock in the following:
 * - A tie or a hung client never hangs a call.
 * - A failed attempt leaves nothing behind.
 * - An expired lock is never handed out.
 * - `using` settles as its routine does.
 * - A lock that is released is handed over at once.
 * - `error` is not emitted for contention.
 * - Releasing a lock that is gone rejects at once.
 * - Custom scripts and settings of another type are refused.
 */
export { Lock, Redlock, Redlock as default } from "./redlock.ts";
export type { CustomScripts } from "./settings.ts";
export {
  type Client,
  type ClientExecutionResult,
  type EngineSettings,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
  type SomeSettings,
} from "./types.ts";
