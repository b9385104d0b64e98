/**
 * A TCP proxy between a client and a server that imitates a bad network, for all its connections or for one connection.
 */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

/** `up` is the direction from the client to the server, and `down` the way back. */
export type Direction = "up" | "down";

/** The server to which the proxy connects. */
export type ProxyTarget = { readonly host: string; readonly port: number } | { readonly path: string };

/** An open connection through the proxy. */
export interface ProxyConnection {
  /** Whether the connection stays open while every byte is swallowed. */
  isSilent: boolean;
}

interface Link extends ProxyConnection {
  readonly client: Socket;
  readonly server: Socket;
  readonly lines: Record<Direction, Line>;
}

/** Bytes that are on their way in one direction, in order. */
interface Line {
  readonly waiting: { readonly atMs: number; readonly run: () => void }[];
  timer: NodeJS.Timeout | undefined;
}

/** Starts a proxy on a free loopback port. */
export async function startProxy(target: ProxyTarget): Promise<FaultyProxy> {
  const proxy = new FaultyProxy(target);
  await proxy.listen();
  return proxy;
}

export class FaultyProxy implements AsyncDisposable {
  readonly host = "127.0.0.1";
  /** Whether connections that are opened from now on are silent. */
  silencesNew = false;
  #target: ProxyTarget;
  readonly #listener: Server;
  readonly #links = new Set<Link>();
  readonly #delayMs: Record<Direction, number> = { up: 0, down: 0 };
  readonly #swallowed: Record<Direction, boolean> = { up: false, down: false };
  readonly #forwarded: Record<Direction, number> = { up: 0, down: 0 };
  #refusing = false;
  #port = 0;

  /** Use `startProxy`. */
  constructor(target: ProxyTarget) {
    this.#target = target;
    this.#listener = createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `redis://${this.host}:${this.#port}`;
  }

  get connectionCount(): number {
    return this.#links.size;
  }

  /** The open connections. */
  get connections(): ReadonlySet<ProxyConnection> {
    return this.#links;
  }

  /** Bytes passed on since the start. */
  forwardedBytes(direction: Direction): number {
    return this.#forwarded[direction];
  }

  async listen(): Promise<void> {
    this.#listener.listen(0, this.host);
    await once(this.#listener, "listening");
    const address = this.#listener.address();
    if (address === null || typeof address === "string") throw new Error("the proxy has no port");
    this.#port = address.port;
  }

  /** Delays bytes that arrive from now on by `ms`, in order. Default of `direction`: both. */
  delay(ms: number, direction?: Direction): void {
    for (const each of both(direction)) this.#delayMs[each] = ms;
  }

  /**
   * Keeps connections open and swallows every byte from now on. Accepts new connections. Default of `direction`: both.
   */
  blackhole(direction?: Direction): void {
    for (const each of both(direction)) this.#swallowed[each] = true;
  }

  /** Connects to this server from now on, like a name that resolves to another address. Open connections remain. */
  redirect(target: ProxyTarget): void {
    this.#target = target;
  }

  /** Resets all open connections, or this connection. Bytes on their way are lost. New connections are accepted. */
  drop(connection?: ProxyConnection): void {
    for (const link of this.#links) if (connection === undefined || link === connection) this.#close(link);
  }

  /** Closes new connections immediately. Open connections remain. */
  refuse(): void {
    this.#refusing = true;
  }

  /** Ends the server's side of every open connection (FIN to the client), and continues to pass on the client's bytes. */
  halfClose(): void {
    for (const { client } of this.#links) client.end();
  }

  /** Ends every fault: bytes pass immediately, and connections are accepted. Swallowed bytes do not return. */
  heal(): void {
    this.delay(0);
    this.#swallowed.up = false;
    this.#swallowed.down = false;
    this.#refusing = false;
  }

  async stop(): Promise<void> {
    if (!this.#listener.listening) return;
    const closed = once(this.#listener, "close");
    this.#listener.close();
    this.drop();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Hook for subclasses. Called with the bytes that a client sends, before they are passed on. */
  protected onSent(_bytes: Buffer, _connection: ProxyConnection): void {}

  #accept(client: Socket): void {
    if (this.#refusing) {
      client.resetAndDestroy();
      return;
    }
    const target = this.#target;
    const address = "port" in target ? { host: target.host, port: target.port } : { path: target.path };
    const server = connect({ ...address, allowHalfOpen: true });
    const lines = { up: emptyLine(), down: emptyLine() };
    const link: Link = { client, server, lines, isSilent: this.silencesNew };
    this.#links.add(link);
    client.setNoDelay(true);
    server.setNoDelay(true);
    client.on("data", (bytes: Buffer) => this.onSent(bytes, link));
    this.#pass(link, client, server, "up");
    this.#pass(link, server, client, "down");
    for (const socket of [client, server]) {
      socket.on("error", () => this.#close(link));
      socket.on("close", () => this.#close(link));
    }
  }

  #pass(link: Link, from: Socket, to: Socket, direction: Direction): void {
    from.on("data", (bytes: Buffer) => {
      this.#later(link, direction, () => {
        if (this.#swallowed[direction] || link.isSilent || !to.writable) return;
        this.#forwarded[direction] += bytes.length;
        to.write(bytes);
      });
    });
    from.on("end", () => {
      this.#later(link, direction, () => {
        if (!this.#swallowed[direction] && !link.isSilent) to.end();
      });
    });
  }

  #later(link: Link, direction: Direction, run: () => void): void {
    const line = link.lines[direction];
    const delayMs = this.#delayMs[direction];
    if (delayMs === 0 && line.waiting.length === 0) {
      run();
      return;
    }
    line.waiting.push({ atMs: performance.now() + delayMs, run });
    line.timer ??= setTimeout(() => advance(line), delayMs);
  }

  #close(link: Link): void {
    if (!this.#links.delete(link)) return;
    clearTimeout(link.lines.up.timer);
    clearTimeout(link.lines.down.timer);
    // libuv refuses to reset a socket that is being shut down, and Node then keeps it open forever.
    if (link.client.writableEnded) link.client.destroy();
    else link.client.resetAndDestroy();
    link.server.destroy();
  }
}

function both(direction: Direction | undefined): readonly Direction[] {
  return direction === undefined ? ["up", "down"] : [direction];
}

function emptyLine(): Line {
  return { waiting: [], timer: undefined };
}

/** Passes on the bytes that are due. Bytes wait for earlier bytes, even if their own delay was shorter. */
function advance(line: Line): void {
  line.timer = undefined;
  for (let next = line.waiting[0]; next !== undefined; next = line.waiting[0]) {
    const leftMs = next.atMs - performance.now();
    if (leftMs > 0) {
      line.timer = setTimeout(() => advance(line), leftMs);
      return;
    }
    line.waiting.shift();
    next.run();
  }
}
