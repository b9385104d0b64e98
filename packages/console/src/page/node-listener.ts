/** The page for what has Node's requests and responses: Express, Fastify, NestJS, `http.createServer`. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Page } from "./page.ts";

export type NodeListener = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Returns a listener that answers with the page. The page reads no bodies, so it does not matter who has parsed them
 * before. What Express cuts off the address of a mounted handler is put back.
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
    // HTTP/2 has names that are none.
    if (!name.startsWith(":") && value !== undefined) headers.set(name, String(value));
  }
  // Who asked for which host is the header's business, which may be anything.
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
  // A browser that goes away is no failure; the stream is cancelled, and with it what is asked for it.
  await pipeline(Readable.fromWeb(response.body), outgoing).catch(() => undefined);
}
