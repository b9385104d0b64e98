/** Pure: the URL of a node, and what may be shown of it. */
import { kindOf } from "../../kit/schema/show.ts";

/** Options of `new Redis(options)`. */
export interface IoredisConnectOptions {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly path?: string | undefined;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly db?: number | undefined;
  readonly tls?: object | undefined;
  readonly sentinels?: readonly object[] | undefined;
  readonly name?: string | undefined;
  readonly keyPrefix?: string | undefined;
}

const LONGEST_SHOWN = 200;
const ENCODED = "must be a valid URL, percent-encoded where it needs to be";
const ONE = "must be one address: pass several as an array of strings";

/**
 * Reads a `redis://`, `rediss://` or `unix://` URL, or the path of a socket. Throws `TypeError`; its text has no
 * secret.
 */
export function connectOptionsOf(url: string): IoredisConnectOptions {
  if (url.startsWith("/")) return { path: url };
  if (!/^(rediss?|unix):\/\//.test(url)) {
    throw refusal("must be a redis://, rediss:// or unix:// URL, or the path of a socket", url);
  }
  if (hasSeveral(url)) throw refusal(ONE, url);
  // A "?" or "#" of a password that is not encoded ends the host: the name of the node would be a part of the secret.
  if (/^[^?#]*[?#].*@/s.test(url)) throw refusal(ENCODED, url);
  let options: IoredisConnectOptions;
  try {
    options = parse(new URL(url));
  } catch {
    // Not as the cause: it has the whole URL.
    throw refusal(ENCODED, url);
  }
  if (options.db !== undefined && !isDatabase(options.db)) {
    throw refusal("must name its database by a number", url);
  }
  return options;
}

/** Tells whether there is another URL after a comma, or another host. A comma of a password is none of them. */
function hasSeveral(url: string): boolean {
  if (/,\s*(rediss?|unix):\/\//.test(url)) return true;
  const [, host = ""] = /^rediss?:\/\/(?:.*@)?([^/?#]*)/s.exec(url) ?? [];
  return host.includes(",");
}

function isDatabase(db: number): boolean {
  return Number.isSafeInteger(db) && db >= 0;
}

function parse(url: URL): IoredisConnectOptions {
  const isSocket = url.protocol === "unix:";
  const db = (isSocket ? "" : url.pathname.slice(1)) || url.searchParams.get("db");
  return {
    ...(isSocket ? { path: decodeURIComponent(url.pathname) } : { port: 6379 }),
    ...addressOf(url),
    ...(db ? { db: Number(db) } : {}),
  };
}

/**
 * Returns what a URL says before its path: the server, the user, and whether the connection is encrypted. Throws
 * `URIError` for a user or password that is not percent-encoded.
 */
export function addressOf(url: URL): Pick<IoredisConnectOptions, "host" | "port" | "username" | "password" | "tls"> {
  const { hostname, port, username, password, protocol } = url;
  return {
    ...(hostname === "" ? {} : { host: hostname.replace(/^\[|\]$/g, "") }),
    ...(port === "" ? {} : { port: Number(port) }),
    ...(username === "" ? {} : { username: decodeURIComponent(username) }),
    ...(password === "" ? {} : { password: decodeURIComponent(password) }),
    ...(protocol === "rediss:" ? { tls: {} } : {}),
  };
}

function refusal(rule: string, url: string): TypeError {
  return new TypeError(`node ${rule}, got ${withoutSecrets(url)}`);
}

/**
 * Shows a URL without its secrets: its scheme (where the mistake may be) and its host. Whatever stands before the
 * last "@" may be a secret, however badly the URL is written, and so may what follows the host. Text with neither
 * scheme nor "@" may be a password alone.
 */
function withoutSecrets(url: string): string {
  const withoutQuery = url.replace(/[?&]password=.*$/is, "?");
  const [, scheme = "", credentials = "", host = "", port = "", rest = ""] =
    /^[\s"']*([a-z][a-z0-9+.-]*:\/\/)?(.*@)?([\w.-]*)(:\d+(?=$|\/))?(.*)$/is.exec(withoutQuery) ?? [];
  if (scheme === "" && credentials === "") return kindOf(url);
  return JSON.stringify(
    `${scheme}${credentials === "" ? "" : "***@"}${host}${port}${rest === "" ? "" : "***"}`.slice(0, LONGEST_SHOWN),
  );
}
