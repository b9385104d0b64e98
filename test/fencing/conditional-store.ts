/**
 * A replacement for S3 with the conditional writes that S3's documentation describes: an ETag is the MD5 of the object
 * in quotes, and a PUT with another `If-Match` is refused with 412. The store checks no signature.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

export interface ConditionalStore {
  readonly url: string;
  readonly objects: Map<string, Buffer>;
  readonly stop: () => Promise<void>;
}

const etagOf = (body: Buffer): string => `"${createHash("md5").update(body).digest("hex")}"`;

export async function startConditionalStore(): Promise<ConditionalStore> {
  const objects = new Map<string, Buffer>();
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const name = request.url ?? "";
    const body = await buffer(request);
    const stored = objects.get(name);
    const expected = request.headers["if-match"];
    if (stored === undefined && (request.method === "GET" || expected !== undefined)) {
      response.writeHead(404).end();
    } else if (request.method === "GET" && stored !== undefined) {
      response.writeHead(200, { ETag: etagOf(stored) }).end(stored);
    } else if (stored !== undefined && expected !== undefined && expected !== etagOf(stored)) {
      response.writeHead(412).end();
    } else {
      objects.set(name, body);
      response.writeHead(200, { ETag: etagOf(body) }).end();
    }
  };
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const stop = async (): Promise<void> => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  };
  return { url: `http://127.0.0.1:${port}`, objects, stop };
}
