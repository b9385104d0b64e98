/** The page as a listener for Node's requests and responses: Express, Fastify, NestJS, `http.createServer`. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Page } from "./page.ts";

export type NodeListener = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Returns a listener that answers with the page. The page reads no request bodies, so a body parser may run before it.
 * The listener uses the full path, even if Express has cut it for a mounted handler.
 */
export function nodeListener(page: Page): NodeListener {
  return (incoming, outgoing) => {
    void respond(page, incoming, outgoing).catch(() => outgoing.destroy());
  };
}

async function respond(page: Page, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const { originalUrl = incoming.url ?? "/" } = incoming as IncomingMessage & { readonly originalUrl?: string };
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming.headers)) {
    // HTTP/2 adds pseudo-headers, whose names start with a colon.
    if (!name.startsWith(":") && value !== undefined) headers.set(name, String(value));
  }
  // The host header may contain anything, so the URL is not built from it.
  const url = new URL(originalUrl.replace(/^\/+/, "/"), "http://localhost");
  if (headers.get("host") === null) headers.set("host", String(incoming.headers[":authority"] ?? ""));
  const response = await page(new Request(url, { method: incoming.method ?? "GET", headers }));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null || incoming.method === "HEAD") {
    await response.body?.cancel();
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  // A browser that leaves is not an error. The pipeline cancels the stream, which ends its work.
  await pipeline(Readable.fromWeb(response.body), outgoing).catch(() => undefined);
}
