/** Pure: converts BullMQ's option `connection` into a lock node, so that locks are stored on the queue's own Redis. */
import { kindOf, show } from "@x/redlock-core/kit";
import { addressOf } from "@x/redlock-core/protocol";

/**
 * Converts BullMQ's option into a lock node. Throws `TypeError` or `RangeError` with messages that contain no secret
 * values.
 */
export function readNode(given: unknown): unknown {
  const connection = readConnection(given);
  try {
    return lockNodeOf(connection);
  } catch {
    // Without the cause, because the cause contains the whole URL.
    throw new TypeError("connection.url must be a valid URL, percent-encoded where it needs to be");
  }
}

/**
 * Returns the client, or a copy of the options. Throws `TypeError` or `RangeError`. The messages do not contain the
 * given value, which may be a URL with a password.
 */
function readConnection(given: unknown): object {
  let options: { readonly url?: unknown; readonly keyPrefix?: unknown } | undefined;
  try {
    if (typeof given === "object" && given !== null && isClient(given)) return given;
    if (Object.prototype.toString.call(given) === "[object Object]") options = { ...(given as object) };
  } catch (cause) {
    throw new TypeError("connection must be readable, got an object that throws when it is read", { cause });
  }
  // BullMQ would connect to 127.0.0.1 if it received a URL object.
  if (options === undefined)
    throw new TypeError(`connection must be an object such as { url: "redis://…" }, got ${kindOf(given)}`);
  const { url, keyPrefix } = options;
  if (url !== undefined && url !== null && typeof url !== "string")
    throw new TypeError(`connection.url must be a string, got ${kindOf(url)}`);
  if (keyPrefix !== undefined && keyPrefix !== "") {
    throw new RangeError(
      `connection must have no keyPrefix, which BullMQ cannot work with (use BullMQ's option prefix), got ${show(keyPrefix)}`,
    );
  }
  return options;
}

/**
 * How long a connection may owe an answer before it counts as dead, in ms: as long as a connection for locks at least
 * may.
 */
export const MAX_SILENCE_MS = 15_000;

/**
 * Returns BullMQ's option `connection` with ioredis' option `socketTimeout`, which replaces a connection that went
 * silent. A value of the user is kept. A client is returned unchanged.
 */
export function withSocketTimeout<Given extends object>(given: Given): Given {
  if (isClient(given)) return given;
  const { socketTimeout = MAX_SILENCE_MS } = given as { readonly socketTimeout?: number };
  return { ...given, socketTimeout };
}

/** Reports whether the value is a client. Clients inherit their methods from a prototype, options have none. */
export function isClient(connection: object): boolean {
  return typeof (connection as { readonly duplicate?: unknown }).duplicate === "function";
}

/** Converts valid options into a lock node. The options may contain a URL, and `{}` means Redis on this machine. */
export function lockNodeOf(connection: unknown): unknown {
  if (isClient(connection as object)) return connection;
  const { url, ...others } = connection as { readonly url?: unknown };
  const options = typeof url === "string" ? { ...others, ...optionsOfUrl(url, others) } : (connection as object);
  const isNamed = ["host", "port", "path", "sentinels"].some((name) => name in options);
  return isNamed ? options : { ...options, host: "127.0.0.1", port: 6379 };
}

/**
 * Returns the options in a URL. They override the options next to the URL except for `tls`, and the query overrides the
 * other parts of the URL. ioredis uses the same order.
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
