/** Pure: reads the URL of a node, and removes the secrets from URLs that are shown. */
import { kindOf } from "../../kit/schema/show.ts";

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
 * Reads a `redis://`, `rediss://` or `unix://` URL, or the path of a socket. Throws `TypeError` with a message that
 * contains no secrets.
 */
export function connectOptionsOf(url: string): IoredisConnectOptions {
  if (url.startsWith("/")) return { path: url };
  if (!/^(rediss?|unix):\/\//.test(url)) {
    throw refusal("must be a redis://, rediss:// or unix:// URL, or the path of a socket", url);
  }
  if (hasSeveral(url)) throw refusal(ONE, url);
  // An unencoded "?" or "#" in a password ends the host. The name of the node would then contain a part of the
  // password.
  if (/^[^?#]*[?#].*@/s.test(url)) throw refusal(ENCODED, url);
  let options: IoredisConnectOptions;
  try {
    options = parse(new URL(url));
  } catch {
    // The error of `URL` contains the whole URL, so it must not become the cause.
    throw refusal(ENCODED, url);
  }
  if (options.db !== undefined && !isDatabase(options.db)) {
    throw refusal("must name its database by a number", url);
  }
  return options;
}

/**
 * Reports whether the text contains another URL after a comma, or another host. A comma in the password does not count.
 */
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
 * Returns the parts of a URL before its path: server, user, and whether the connection is encrypted. Throws `URIError`
 * if the user or password is not percent-encoded.
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
 * Shows a URL without its secrets: only its scheme (where the mistake may be) and its host. In a malformed URL all text
 * before the last "@" may be a secret, and so may the text after the host. A text with neither scheme nor "@" may be
 * nothing but a password.
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
