/**
 * This entry is node-redlock 4 on the engine of `@x/redlock-core`. It has the class, methods, callbacks, options,
 * defaults and errors of `redlock` 4.2.0. A migration is one changed import:
 *
 * ```ts
 * import Redlock from "@x/node-redlock/v4";
 * ```
 *
 * It differs from node-redlock 4 in the same points as `@x/node-redlock` differs from node-redlock 5, and its promises
 * are native ones: see `Redlock.Promise`.
 */
export {
  type Callback,
  type Disposer,
  Lock,
  LockError,
  type LockOptions,
  type Options,
  Redlock,
  Redlock as default,
} from "./redlock4.ts";
export type { Client, EngineSettings } from "./types.ts";
