import type { ExclusiveWorkerOptions } from "@x/workers";
import type { Data } from "../support/lab.ts";

/** The option `key` under test: a path is read by Lua, a function is called by the worker. */
export type Key = ExclusiveWorkerOptions<Data>["key"];

export const keyKinds = {
  path: "k",
  function: (job) => job.data.k as string | undefined,
} satisfies Readonly<Record<string, Key>>;

/** Options of a worker that checks its lane often enough for a test when no event is sent. */
export function healsSoon(key: Key): {
  readonly key: Key;
  readonly recheckInterval: number;
  readonly drainDelay: number;
} {
  return { key, recheckInterval: 300, drainDelay: 1 };
}
