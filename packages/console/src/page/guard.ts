/**
 * Checks who may send which request. Every web site that a user opens can reach a page on the loopback. An attacker's
 * host name may point to 127.0.0.1 (DNS rebinding), and a site may send requests to other sites.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/** Hosts that the page answers for by default. */
export const LOOPBACK_HOSTS: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

/**
 * The header with the token of an action. A browser lets another site send this header only with the page's permission.
 */
const TOKEN_HEADER = "x-console-token";

const HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Proxies and middlewares that compress would buffer the live stream.
  "cache-control": "no-store, no-transform",
};

/** Returns a response with the headers of every response of the page. */
export function answer(
  status: number,
  type: string,
  body: string | ReadableStream | null,
  more: Record<string, string> = {},
): Response {
  return new Response(body, { status, headers: { ...HEADERS, "content-type": type, ...more } });
}

export function refusal(status: number, message: string): Response {
  return answer(status, "text/plain; charset=utf-8", `${message}\n`);
}

/**
 * Refuses a request for another host, a request from another site, and a navigation to anything but the page itself. A
 * link of another site may open the page (`isPage`), but not in a frame.
 */
export function refusalOf(request: Request, hosts: readonly string[], isPage: boolean): Response | undefined {
  const host = hostOf(request);
  if (host === undefined || !isAmong(host, hosts)) {
    return refusal(
      421,
      `This page does not answer for the host ${JSON.stringify(host ?? "")}: add the host to the option hosts, or pass --allow-host.`,
    );
  }
  const { headers, method } = request;
  const [site, mode, target] = ["site", "mode", "dest"].map((name) => headers.get(`sec-fetch-${name}`));
  if (mode === "navigate" || FRAMES.has(target ?? "")) {
    const isOpened = isPage && method === "GET" && (target === "document" || target === null);
    return isOpened ? undefined : refusal(403, "Only the page itself may be opened, and not in a frame.");
  }
  const isOfOthers = (site !== null && site !== "same-origin" && site !== "none") || isForeign(request, host);
  return isOfOthers ? refusal(403, "Requests from other sites are refused.") : undefined;
}

/** Values of `Sec-Fetch-Dest` for documents inside other documents. */
const FRAMES: ReadonlySet<string> = new Set(["iframe", "frame", "embed", "object", "fencedframe"]);

/** Whether a site with another host sent the request. Browsers without `Sec-Fetch-Site` send `Origin`. */
function isForeign({ headers }: Request, host: string): boolean {
  const origin = headers.get("origin");
  return origin !== null && !(URL.canParse(origin) && new URL(origin).host === host);
}

/** Refuses an action that was not sent by this page. */
export function actionRefusalOf(request: Request, token: string): Response | undefined {
  const host = hostOf(request);
  const isOurs = request.headers.has("origin") && host !== undefined && !isForeign(request, host);
  if (!isOurs) return refusal(403, "An action must come from the page itself (Origin).");
  if (!isSame(request.headers.get(TOKEN_HEADER) ?? "", token))
    return refusal(403, "The token of this page is no longer valid: load it again.");
  return undefined;
}

/**
 * Returns a name for a page that is about to be sent. The name is signed with `token`, and other sites cannot read it.
 * So no other site can use the page's budget.
 */
export function newClient(token: string): string {
  const name = randomBytes(12).toString("base64url");
  return `${name}.${signatureOf(name, token)}`;
}

/** Whether a page with this `token` created `client`. */
export function isClient(client: string, token: string): boolean {
  const [name = "", signature = ""] = client.split(".", 2);
  return isSame(signature, signatureOf(name, token));
}

function signatureOf(name: string, token: string): string {
  return createHmac("sha256", token).update(`client ${name}`).digest("base64url");
}

function isSame(given: string, wanted: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(wanted)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/** Returns the host and port of a request. Undefined if the host is missing or malformed. */
function hostOf(request: Request): string | undefined {
  const given = request.headers.get("host") ?? new URL(request.url).host;
  return URL.canParse(`http://${given}/`) && !/[/?#@\\]/.test(given) ? new URL(`http://${given}/`).host : undefined;
}

function isAmong(host: string, hosts: readonly string[]): boolean {
  const { hostname } = new URL(`http://${host}/`);
  return hosts.some((each) => {
    const named = each.toLowerCase();
    return named === hostname || withoutDefaultPort(named) === withoutDefaultPort(host);
  });
}

/** Browsers omit these ports. */
function withoutDefaultPort(host: string): string {
  return host.replace(/:(?:80|443)$/, "");
}
