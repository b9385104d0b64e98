/** Pure: BullMQ's option `connection` as a node of locks, which are then on the queue's own Redis. */
import { addressOf, kindOf, show } from "@x/redlock-core/protocol";

/** Returns BullMQ's option as a lock node. Throws `TypeError` and `RangeError`, and shows no value. */
export function readNode(given: unknown): unknown {
  const connection = readConnection(given);
  try {
    return lockNodeOf(connection);
  } catch {
    // Without the cause, which has the whole URL.
    throw new TypeError("connection.url must be a valid URL, percent-encoded where it needs to be");
  }
}

/**
 * Returns a client, or a copy of options. Throws `TypeError` and `RangeError`, and shows no value, because it may be a
 * URL.
 */
function readConnection(given: unknown): object {
  let options: { readonly url?: unknown; readonly keyPrefix?: unknown } | undefined;
  try {
    if (typeof given === "object" && given !== null && isClient(given)) return given;
    if (Object.prototype.toString.call(given) === "[object Object]") options = { ...(given as object) };
  } catch (cause) {
    throw new TypeError("connection must be readable, got an object that throws when it is read", { cause });
  }
  // Of a URL object BullMQ would make 127.0.0.1.
  if (options === undefined)
    throw new TypeError(`connection must be an object such as { url: "redis://…" }, got ${kindOf(given)}`);
  const { url, keyPrefix } = options;
  if (url !== undefined && url !== null && typeof url !== "string")
    throw new TypeError(`connection must have its url as a string, got ${kindOf(url)}`);
  if (keyPrefix !== undefined && keyPrefix !== "") {
    throw new RangeError(
      `connection must have no keyPrefix, which BullMQ cannot work with (use BullMQ's option prefix), got ${show(keyPrefix)}`,
    );
  }
  return options;
}

/** Tells a client from options: it has methods, which are its prototype's. */
function isClient(connection: object): boolean {
  return typeof (connection as { readonly duplicate?: unknown }).duplicate === "function";
}

/** Returns BullMQ's option as a lock node: it may have a URL in it, and `{}` is Redis on this machine. */
export function lockNodeOf(connection: unknown): unknown {
  if (isClient(connection as object)) return connection;
  const { url, ...others } = connection as { readonly url?: unknown };
  const options = typeof url === "string" ? { ...others, ...optionsOfUrl(url, others) } : (connection as object);
  const isNamed = ["host", "port", "path", "sentinels"].some((name) => name in options);
  return isNamed ? options : { ...options, host: "127.0.0.1", port: 6379 };
}

/**
 * Returns what a URL says, which goes before the options beside it, except `tls`. Its query goes after its other parts.
 * ioredis does the same.
 */
function optionsOfUrl(url: string, others: object): object {
  const hasAuthority = /^(?:[a-z][a-z0-9+.-]*:)?\/\//i.test(url);
  if (url.startsWith("/") && !hasAuthority) {
    const [path, query] = url.split("?");
    return { ...optionsOf(new URLSearchParams(query)), path };
  }
  const parsed = new URL(hasAuthority ? url : `//${url}`, "redis://localhost");
  const { pathname, searchParams } = parsed;
  return {
    ...optionsOf(searchParams),
    ...addressOf(parsed),
    ...(pathname.length <= 1 ? {} : hasAuthority ? { db: Number(pathname.slice(1)) } : { path: pathname }),
    ...("tls" in others ? { tls: others.tls } : {}),
  };
}

function optionsOf(query: URLSearchParams): object {
  return Object.fromEntries([...query].map(([name, value]) => [name, /^\d+$/.test(value) ? Number(value) : value]));
}
