/**
 * Pure: what is asked of a node about some resources, as scripts/batch.lua.ts reads it: the keys of the resources, and one
 * argument with a letter, the count of resources and the rest. What may be any text comes last.
 */

/** Resources that are locked together, and where they are on each node. */
export interface Target {
  readonly resources: readonly string[];
  /** Three per resource: lock, fence, waiters. */
  readonly keys: readonly string[];
  /** In a Cluster: the slot of all keys; else 0. */
  readonly slot: number;
}

export interface Operation {
  readonly keys: readonly string[];
  readonly text: string;
  /** Operations of different slots cannot travel together. */
  readonly slot: number;
}

/** `member`: the name under which a refused attempt is enrolled in the queue; undefined: it is not. */
export function acquireOperation(
  { resources, keys, slot }: Target,
  facts: {
    readonly token: string;
    readonly ttlMs: number;
    readonly ballot: number;
    readonly order: number;
    readonly member: string | undefined;
  },
): Operation {
  const { token, ttlMs, ballot, order, member = "" } = facts;
  return { keys, slot, text: `A${resources.length} ${token} ${ttlMs} ${ballot} ${order} ${member}` };
}

export function extendOperation(
  { resources, keys, slot }: Target,
  facts: { readonly token: string; readonly ttlMs: number; readonly fencingToken: number },
): Operation {
  return { keys, slot, text: `E${resources.length} ${facts.ttlMs} ${facts.fencingToken} ${facts.token}` };
}

export function releaseOperation({ resources, keys, slot }: Target, token: string): Operation {
  return { keys, slot, text: `R${resources.length} ${token}` };
}

export function leaveOperation({ resources, keys, slot }: Target, member: string): Operation {
  return { keys, slot, text: `L${resources.length} ${member}` };
}

export function waitOperation(
  { resources, keys, slot }: Target,
  facts: { readonly order: number; readonly member: string },
): Operation {
  return { keys, slot, text: `W${resources.length} ${facts.order} ${facts.member}` };
}
