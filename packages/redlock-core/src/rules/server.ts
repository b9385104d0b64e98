/** Pure: recognizes the product and version of a server from its INFO. */

/** The product of a server, by the field of INFO that only this product has. */
const PRODUCTS: readonly (readonly [field: string, product: string])[] = [
  ["dragonfly_version", "Dragonfly"],
  ["garnet_version", "Garnet"],
  ["valkey_version", "Valkey"],
  ["upstash_version", "Upstash"],
  ["redis_version", "Redis"],
];

/** Products on which the tests of this project have run. */
const TESTED: readonly string[] = ["Redis", "Valkey"];

export interface ServerProduct {
  readonly product: string;
  /** Version of the product. Empty if unknown. */
  readonly version: string;
}

/** Reads the fields of an INFO. */
export function readInfo(text: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1));
  }
  return fields;
}

/** Returns the product of a server. Undefined if its INFO names no version. */
export function serverOf(info: ReadonlyMap<string, string>): ServerProduct | undefined {
  const known = PRODUCTS.find(([field]) => info.has(field));
  if (known === undefined) return undefined;
  const [field, product] = known;
  const version = (info.get(field) ?? "").replace(/^(df-)?v/, "");
  return { product: product === "Redis" && isKeyDb(info) ? "KeyDB" : product, version };
}

/** KeyDB calls itself Redis. Its versions 6.3 have no counterpart in Redis. */
function isKeyDb(info: ReadonlyMap<string, string>): boolean {
  return info.has("mvcc_depth") || info.get("redis_version")?.startsWith("6.3.") === true;
}

export function isTested({ product }: ServerProduct): boolean {
  return TESTED.includes(product);
}

export function describeServer({ product, version }: ServerProduct): string {
  return `${product} ${version}`.trimEnd();
}

/**
 * Returns the reason why the server with this INFO must not hold locks. Undefined if it may, as far as INFO shows.
 *
 * A Garnet runs the commands of a script one by one, between commands of other clients. Its transaction mode would
 * prevent this, but no client can read whether the mode is on.
 */
export function serverRefusal(info: string): string | undefined {
  const server = serverOf(readInfo(info));
  if (server?.product !== "Garnet") return undefined;
  return `NOT_ATOMIC this server is ${describeServer(server)}, which runs commands of other clients in the middle of a script, so two clients could hold one lock: use Redis or Valkey`;
}
