/** Names of resources in span names and attributes, where few different names are allowed. */

export type NameOf = (resource: string) => string;

/** Replaces the text after the last colon by `*`: `account:42` becomes `account:*`. */
export function nameOf(resource: string): string {
  const end = resource.lastIndexOf(":");
  return end < 0 ? resource : `${resource.slice(0, end + 1)}*`;
}

/**
 * Returns one name for all resources of a lock. Returns `?` if `name` throws, because telemetry must not break the
 * caller.
 */
export function nameOfAll(resources: readonly string[], name: NameOf): string {
  try {
    return [...new Set(resources.map((resource) => name(resource)))].sort().join(" ");
  } catch {
    return "?";
  }
}

/** Returns a key for a held lock. A fencing token is unique for its resource. */
export function idOf(lock: { readonly resources: readonly string[]; readonly fencingToken: number }): string {
  return `${lock.fencingToken} ${lock.resources.join("\n")}`;
}
