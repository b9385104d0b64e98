/**
 * node-redlock 5 on the engine of `@x/redlock-core`, with the class, methods, option names, defaults and error classes
 * of `redlock` 5.0.0-beta.2. A migration changes one import:
 *
 * ```ts
 * import Redlock, { ExecutionError, ResourceLockedError } from "@x/node-redlock";
 * ```
 *
 * Locks exclude the locks of node-redlock 4 and 5 and of the core on the same keys, and are excluded by them. While too
 * few clients are connected, `acquire` waits as long as their offline queues do. The guide "From node-redlock" lists
 * every difference.
 */
export { Lock, Redlock, Redlock as default } from "./redlock.ts";
export type { CustomScripts } from "./settings.ts";
export * from "./types.ts";
