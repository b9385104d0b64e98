/** Pure: checks the names of resources. */
import { type Check, textLike } from "../kit/schema/check.ts";
import { kindOf, quote } from "../kit/schema/show.ts";

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
