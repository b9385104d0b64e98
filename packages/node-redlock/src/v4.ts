/**
 * node-redlock 4 on the engine of `@x/redlock-core`, with the class, methods, callbacks, options, defaults and errors
 * of `redlock` 4.2.0. A migration changes one import:
 *
 * ```ts
 * import Redlock from "@x/node-redlock/v4";
 * ```
 *
 * The differences to node-redlock 4 are the differences of `@x/node-redlock` to node-redlock 5. In addition, promises
 * are native promises: see `Redlock.Promise`.
 */
export * from "./redlock4.ts";
export { Redlock as default } from "./redlock4.ts";
export type { Client, EngineSettings } from "./types.ts";
