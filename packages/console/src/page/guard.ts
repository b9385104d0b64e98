/**
 * Who may ask for what. A page that is bound to the loopback is still within reach of every web site that its user
 * opens. A host name may be made to point to 127.0.0.1 (DNS rebinding), and a site may send requests elsewhere.
 */
import { timingSafeEqual } from "node:crypto";

/** Hosts by which a page is asked for that nothing was said about. */
export const LOOPBACK_HOSTS: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

/** The name of the header that has the token of an action. A site elsewhere cannot send it without being asked. */
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
  // Proxies and middlewares that compress would keep what is live until there is enough of it.
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

/** Refuses a request for another host, and one that another site makes for data. */
export function refusalOf(request: Request, hosts: readonly string[]): Response | undefined {
  const host = hostOf(request);
  if (host === undefined || !isAmong(host, hosts)) {
    return refusal(
      421,
      `This page does not answer for the host ${JSON.stringify(host ?? "")}: name it in the option hosts, or with --allow-host.`,
    );
  }
  const site = request.headers.get("sec-fetch-site");
  const isNavigation = request.headers.get("sec-fetch-mode") === "navigate" && request.method === "GET";
  if (site !== null && site !== "same-origin" && site !== "none" && !isNavigation)
    return refusal(403, "Another site may not ask for this.");
  return undefined;
}

/** Refuses an action that this page, in its user's hands, did not send. */
export function actionRefusalOf(request: Request, token: string): Response | undefined {
  const origin = request.headers.get("origin");
  const isOurs = origin !== null && URL.canParse(origin) && new URL(origin).host === hostOf(request);
  if (!isOurs) return refusal(403, "An action must come from the page itself (Origin).");
  const given = Buffer.from(request.headers.get(TOKEN_HEADER) ?? "");
  const wanted = Buffer.from(token);
  if (given.length !== wanted.length || !timingSafeEqual(given, wanted))
    return refusal(403, "The token of this page is no longer valid: load it again.");
  return undefined;
}

/** The host and port that a request is for; undefined: there is none, or it is none. */
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

/** Browsers leave these ports out. */
function withoutDefaultPort(host: string): string {
  return host.replace(/:(?:80|443)$/, "");
}
