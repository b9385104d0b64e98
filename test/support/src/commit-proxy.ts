/** A TCP proxy in front of a PostgreSQL server that cuts a connection around its COMMIT. */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

/**
 * The fate of a COMMIT.
 *
 * - `pass`: nothing happens.
 * - `before`: the connection is cut before the COMMIT arrives, so the server rolls back.
 * - `after`: the server commits, and the connection is cut before the reply arrives.
 * - `slow`: the client's side is cut immediately, while the server still commits.
 * - `late`: the client's side is cut, and the COMMIT arrives a moment later.
 */
export type CommitFault = "pass" | "before" | "after" | "slow" | "late";

const LATE_MS = 150;

/** Starts a proxy on a free loopback port. `faultOf` is called at each COMMIT, with the number of earlier COMMITs. */
export async function startCommitProxy(port: number, faultOf: (commits: number) => CommitFault): Promise<CommitProxy> {
  const proxy = new CommitProxy(port, faultOf);
  await proxy.listen();
  return proxy;
}

export class CommitProxy implements AsyncDisposable {
  readonly host = "127.0.0.1";
  /** Whether new connections are refused. */
  isRefusing = false;
  readonly #target: number;
  readonly #faultOf: (commits: number) => CommitFault;
  readonly #listener: Server;
  readonly #sockets = new Set<Socket>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #commits = 0;
  #port = 0;

  /** Use `startCommitProxy`. */
  constructor(target: number, faultOf: (commits: number) => CommitFault) {
    this.#target = target;
    this.#faultOf = faultOf;
    this.#listener = createServer((client) => this.#accept(client));
  }

  get port(): number {
    return this.#port;
  }

  async listen(): Promise<void> {
    this.#listener.listen(0, this.host);
    await once(this.#listener, "listening");
    const address = this.#listener.address();
    if (address === null || typeof address === "string") throw new Error("the proxy has no port");
    this.#port = address.port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    const closed = once(this.#listener, "close");
    this.#listener.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #accept(client: Socket): void {
    if (this.isRefusing) {
      client.resetAndDestroy();
      return;
    }
    const server = connect(this.#target, this.host);
    let isCut = false;
    const end = (): void => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        this.#sockets.delete(socket);
        if (!isCut) end();
      });
    }
    server.on("data", (bytes) => {
      if (!isCut) client.write(bytes);
    });
    client.on("data", (bytes) => {
      const fault = bytes.includes("COMMIT\0") ? this.#faultOf(this.#commits++) : "pass";
      if (fault === "pass") {
        server.write(bytes);
        return;
      }
      if (fault === "before") {
        end();
        return;
      }
      isCut = true;
      if (fault !== "after") client.destroy();
      const send = (): void => {
        server.once("data", end);
        server.write(bytes);
      };
      if (fault === "late") {
        const timer = setTimeout(() => {
          this.#timers.delete(timer);
          send();
        }, LATE_MS);
        this.#timers.add(timer);
      } else send();
    });
  }
}
