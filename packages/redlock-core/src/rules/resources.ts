/** Pure: checks the names of resources, and computes their keys. */
import { type Check, textLike } from "../kit/schema/check.ts";
import { kindOf, quote } from "../kit/schema/show.ts";
import { checkLockKey, hasStableSlot, keysOf, lockKeyOf, nodeKeysOf, SLOT_COUNT, slotOf } from "./keys.ts";
import type { Target } from "./operation.ts";

/** Maximum length of a resource's name, in bytes of UTF-8. Scripts search each name, and each node stores the name. */
export const MAX_RESOURCE_BYTES = 4_096;
/** A name of this length fits for certain, because one UTF-16 unit takes up to three bytes of UTF-8. */
const SURELY_SHORT = Math.floor(MAX_RESOURCE_BYTES / 3);

export const resourceName: Check<string> = textLike(
  `a non-empty string of up to ${MAX_RESOURCE_BYTES} bytes`,
  (name) => name !== "" && (name.length <= SURELY_SHORT || Buffer.byteLength(name) <= MAX_RESOURCE_BYTES),
);

/** Checks the single resource of an operator's call. */
export function resolveResource(resource: string): string {
  return resourceName.of("resource", resource);
}

/**
 * Checks the resources of one lock: one name, or a list of distinct non-empty names. With `mayRepeat`, repeated names
 * are removed instead of refused.
 */
export function resolveResources(resources: string | readonly string[], mayRepeat = false): readonly string[] {
  if (typeof resources === "string") return [resolveResource(resources)];
  const names = listed(resources);
  if (names === undefined)
    throw new TypeError(`resource must be a string or an array of strings, got ${kindOf(resources)}`);
  if (names.length === 0) throw new RangeError("resources must name at least one resource, got []");
  const distinct = new Set<string>();
  for (const name of names) {
    if (distinct.has(resolveResource(name)) && !mayRepeat)
      throw new RangeError(`resources must be distinct, got ${quote(name)} twice`);
    distinct.add(name);
  }
  return distinct.size === names.length ? names : [...distinct];
}

/**
 * Copies the caller's array, which might change or throw when read. Returns undefined if it is not a readable array.
 */
function listed(given: unknown): readonly string[] | undefined {
  try {
    return Array.isArray(given) ? Array.from(given as readonly string[]) : undefined;
  } catch {
    return undefined;
  }
}

/** Computes the keys of resources on the nodes of one `Redlock`. */
export class Targets {
  readonly keyPrefix: string;
  readonly #isCluster: boolean;
  /** Whether a single node has all votes and numbers the grants itself. */
  readonly #isAlone: boolean;

  constructor(nodes: { readonly keyPrefix: string; readonly isCluster: boolean; readonly isAlone: boolean }) {
    this.keyPrefix = nodes.keyPrefix;
    this.#isCluster = nodes.isCluster;
    this.#isAlone = nodes.isAlone;
  }

  /**
   * Returns the keys of the resources on each node.
   * @throws RangeError if a key may not belong to a lock, or if slots differ in a Cluster.
   */
  of(resources: readonly string[]): Target {
    const keys = keysOf(this.keyPrefix, resources);
    for (const key of keys) checkLockKey(key);
    const registers = this.#isAlone ? undefined : keys.map(registerOf);
    return { resources, keys, registers, slot: this.#isCluster ? this.#slotOf(resources) : 0 };
  }

  /** Returns the node's keys that contain the lines of a target's waiters, and the ends of the lines. */
  lineKeysOf({ slot }: Target): readonly [lines: string, lineEnds: string] {
    const { lines, lineEnds } = nodeKeysOf(this.#isCluster ? slot : undefined);
    return [lines, lineEnds];
  }

  /**
   * Returns where nodes store the fencing token of a resource: in a register of the hash, or, if `register` is "", in a
   * key.
   */
  fencingPlaceOf({ slot, registers }: Target): { readonly key: string; readonly register: string } {
    const { hash, lastNumber } = nodeKeysOf(this.#isCluster ? slot : undefined);
    return this.#isAlone ? { key: lastNumber, register: "" } : { key: hash, register: registers?.[0] ?? "" };
  }

  #slotOf(resources: readonly string[]): number {
    const slots = resources.map((resource) => {
      const key = lockKeyOf(this.keyPrefix, resource);
      if (!hasStableSlot(key))
        throw new RangeError(`resource must not contain "}" without a hash tag in a Cluster, got ${quote(resource)}`);
      return slotOf(key);
    });
    const first = slots[0] ?? 0;
    if (slots.some((slot) => slot !== first)) {
      throw new RangeError(
        `resources of one lock must share a hash slot in a Cluster: use one hash tag, got ${resources.slice(0, 5).map(quote).join(", ")}`,
      );
    }
    return first;
  }
}

const REGISTERS = Array.from({ length: SLOT_COUNT }, (_, slot) => String(slot));

function registerOf(key: string): string {
  return REGISTERS[slotOf(key)] as string;
}
