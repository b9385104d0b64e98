/** Serves the page's own files with a fixed state, as the page's server would. */
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { jsonOf, type PageState } from "../../src/page/state.ts";

const assets = fileURLToPath(new URL("../../dist/assets/", import.meta.url));

const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:";
const TYPES: Readonly<Record<string, string>> = { js: "text/javascript", css: "text/css", html: "text/html" };

export interface PictureServer {
  readonly url: string;
  /** Sends another state to the open pages. */
  show(state: PageState): void;
  /** Files that are answered with an error. */
  readonly refused: Set<string>;
  close(): Promise<void>;
}

export async function servePictures(first: PageState): Promise<PictureServer> {
  let state = first;
  const refused = new Set<string>();
  const streams = new Set<(state: PageState) => void>();
  const server: Server = createServer((request, response) => {
    const name = (request.url ?? "/").split("?")[0]?.slice(1) ?? "";
    if (name === "events") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const tell = (state: PageState): void => void response.write(`event: state\ndata: ${jsonOf(state)}\n\n`);
      tell(state);
      streams.add(tell);
      response.on("close", () => streams.delete(tell));
      return;
    }
    const file = name === "" ? "page.html" : name;
    const type = TYPES[file.split(".").at(-1) ?? ""];
    if (type === undefined || refused.has(file)) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": `${type}; charset=utf-8`, "content-security-policy": POLICY });
    response.end(readFileSync(assets + file));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    refused,
    show: (next) => {
      state = next;
      for (const tell of streams) tell(next);
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
