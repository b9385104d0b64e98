/** node-redlock 5, whose types do not resolve here. */
import { createRequire } from "node:module";
import type { Redis } from "ioredis";

export interface Redlock5 {
  acquire(resources: string[], duration: number, settings?: object): Promise<Redlock5Lock>;
  using(resources: string[], duration: number, settings: object, routine: () => Promise<void>): Promise<void>;
}

export interface Redlock5Lock {
  extend(duration: number): Promise<Redlock5Lock>;
  release(): Promise<unknown>;
}

const require = createRequire(import.meta.url);

export const { default: NodeRedlock5 } = require("redlock") as {
  readonly default: new (clients: readonly Redis[], settings?: object) => Redlock5;
};
