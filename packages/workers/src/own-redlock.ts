/** A worker's own `Redlock`, on the queue's own Redis: where BullMQ's option `connection` leads. */
import { Redlock } from "@x/redlock-core";
import { describe, type ExclusiveWorkerOptions } from "./options.ts";

export function ownRedlock(options: ExclusiveWorkerOptions<never, never>, lockTtl: number): Redlock {
  const { connection } = options as { readonly connection?: unknown };
  if (connection === undefined || connection === null) throw new TypeError("connection must be given, got none");
  if (typeof connection !== "object") {
    throw new TypeError(`connection must be an object such as { url: "redis://…" }, got ${describe(connection)}`);
  }
  // BullMQ would connect to 127.0.0.1.
  if (connection instanceof URL || (connection as { readonly url?: unknown }).url instanceof URL)
    throw new TypeError("connection must have its url as a string, got a URL object");
  const { keyPrefix } = connection as { readonly keyPrefix?: unknown };
  if (keyPrefix !== undefined && keyPrefix !== "") {
    throw new RangeError(
      `connection must have no keyPrefix, which BullMQ cannot work with (use BullMQ's option prefix), got ${describe(keyPrefix)}`,
    );
  }
  try {
    return new Redlock(lockNodeOf(connection) as string, { ttl: lockTtl, autoExtend: true });
  } catch (error) {
    throw new TypeError("connection cannot be used for locks: give the option redlock", { cause: error });
  }
}

/** BullMQ's connection option as a lock node: it may be a URL in an object, and `{}` is Redis on this machine. */
export function lockNodeOf(connection: unknown): unknown {
  // A client: its methods are its prototype's.
  if (typeof (connection as { readonly duplicate?: unknown }).duplicate === "function") return connection;
  const { url, ...others } = connection as { readonly url?: unknown };
  if (typeof url === "string") return { ...others, ...addressOf(url, others) };
  const isNamed = ["host", "port", "path", "sentinels"].some((name) => name in (connection as object));
  return isNamed ? connection : { ...(connection as object), host: "127.0.0.1", port: 6379 };
}

/** What a URL says goes before the options beside it, its query after its other parts; all of this as ioredis has it. */
function addressOf(url: string, others: object): object {
  const hasAuthority = /^(?:[a-z][a-z0-9+.-]*:)?\/\//i.test(url);
  if (url.startsWith("/") && !hasAuthority) {
    const [path, query] = url.split("?");
    return { ...optionsOf(new URLSearchParams(query)), path };
  }
  const { hostname, port, username, password, pathname, protocol, searchParams } = new URL(
    hasAuthority ? url : `//${url}`,
    "redis://localhost",
  );
  return {
    ...optionsOf(searchParams),
    host: hostname.replace(/^\[|\]$/g, ""),
    ...(port === "" ? {} : { port: Number(port) }),
    ...(username === "" ? {} : { username: decodeURIComponent(username) }),
    ...(password === "" ? {} : { password: decodeURIComponent(password) }),
    ...(pathname.length <= 1 ? {} : hasAuthority ? { db: Number(pathname.slice(1)) } : { path: pathname }),
    ...(protocol === "rediss:" && !("tls" in others) ? { tls: {} } : {}),
  };
}

function optionsOf(query: URLSearchParams): object {
  return Object.fromEntries([...query].map(([name, value]) => [name, /^\d+$/.test(value) ? Number(value) : value]));
}
