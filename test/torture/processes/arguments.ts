import type { Address, SystemName } from "../systems/system.ts";

export interface ProcessArguments {
  readonly system: SystemName;
  readonly name: string;
  readonly servers: readonly Address[];
  readonly storePath: string;
  readonly eventFile: string;
  readonly leaseMs: number;
  readonly keys: readonly string[];
}

/** Message from the parent to a process: block the event loop for a time, or shift the wall clock by an amount. */
export type Order = { readonly blockMs: number } | { readonly clockOffMs: number };

/** Message from a process to its parent: the worker or the lock client has started. */
export const READY = "ready";
