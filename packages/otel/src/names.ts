/** What resources are called where there must be few names. */

export type NameOf = (resource: string) => string;

/** `account:42` is `account:*`: what comes after the last colon is one of many. */
export function nameOf(resource: string): string {
  const end = resource.lastIndexOf(":");
  return end < 0 ? resource : `${resource.slice(0, end + 1)}*`;
}

/** One name for all that a lock locks. A name that cannot be had is `?`: telling must break nothing. */
export function nameOfAll(resources: readonly string[], name: NameOf): string {
  try {
    return [...new Set(resources.map((resource) => name(resource)))].sort().join(" ");
  } catch {
    return "?";
  }
}

/** A fencing token is of one grant of a resource. */
export function idOf(lock: { readonly resources: readonly string[]; readonly fencingToken: number }): string {
  return `${lock.fencingToken} ${lock.resources.join("\n")}`;
}
