/**
 * A proxy between a client and a Redis that answers like another product or a managed service. Scripts run on the Redis
 * itself, so the calls of scripts are unchanged, except for their replies.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface VendorRules {
  /** Errors by command, such as `{ "SCRIPT LOAD": "NOPERM …", INFO: "ERR unknown command 'info'" }`. */
  readonly refused?: Readonly<Record<string, string>>;
  /** Changes each INFO, even an INFO that a script replies. */
  readonly info?: (text: string) => string;
}

export interface VendorProxy {
  readonly port: number;
  readonly url: string;
  /** Changes the rules for replies that arrive from now on. */
  become(rules: VendorRules): void;
  stop(): Promise<void>;
}

/** Starts a proxy on a free loopback port. */
export async function startVendorProxy(
  target: { readonly host: string; readonly port: number },
  given: VendorRules,
): Promise<VendorProxy> {
  let rules = given;
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const server = connect(target);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    join(client, server, () => rules);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as { readonly port: number };
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    become: (changed) => {
      rules = changed;
    },
    stop: async () => {
      const closed = once(listener, "close");
      listener.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

/**
 * Passes requests and replies on. `owed` contains the replies that the client expects, in order: replies of this proxy,
 * or of the server.
 */
function join(client: Socket, server: Socket, rules: () => VendorRules): void {
  const owed: (Buffer | undefined)[] = [];
  let [sent, received]: [Buffer, Buffer] = [Buffer.alloc(0), Buffer.alloc(0)];
  let isListener = false;
  const answer = (): void => {
    while (owed[0] !== undefined) client.write(owed.shift() as Buffer);
  };
  client.on("data", (bytes: Buffer) => {
    sent = Buffer.concat([sent, bytes]);
    for (let end = frameEnd(sent, 0); end !== -1; end = frameEnd(sent, 0)) {
      const frame = sent.subarray(0, end);
      sent = sent.subarray(end);
      const [name = "", part = ""] = wordsOf(frame);
      const { refused = {} } = rules();
      const error = refused[name] ?? refused[`${name} ${part}`];
      isListener ||= name.endsWith("SUBSCRIBE");
      owed.push(error === undefined ? undefined : Buffer.from(`-${error}\r\n`));
      if (error === undefined) server.write(frame);
      answer();
    }
  });
  server.on("data", (bytes: Buffer) => {
    received = Buffer.concat([received, bytes]);
    for (let end = frameEnd(received, 0); end !== -1; end = frameEnd(received, 0)) {
      const frame = received.subarray(0, end);
      received = received.subarray(end);
      const { info } = rules();
      client.write(info === undefined ? frame : withInfo(frame, 0, info).bytes);
      // A message is not the reply to a request. Connections that subscribe send no refused command.
      if (frame[0] !== 62 /* > */ && !isListener) owed.shift();
      answer();
    }
  });
}

/** Returns the first two words of a request, in capitals. */
function wordsOf(frame: Buffer): readonly string[] {
  const parts = frame.subarray(0, 200).toString("latin1").split("\r\n");
  return [parts[2], parts[4]].map((part = "") => part.toUpperCase());
}

const AGGREGATES = "*~>%|";
const BULKS = "$!=";

/** Returns the end of the frame that begins at `at`, or -1 if the frame is not complete. */
function frameEnd(bytes: Buffer, at: number): number {
  const line = bytes.indexOf("\r\n", at);
  if (line === -1) return -1;
  const type = String.fromCharCode(bytes[at] ?? 0);
  const count = Number(bytes.subarray(at + 1, line).toString("latin1"));
  let end = line + 2;
  if (BULKS.includes(type)) {
    if (count >= 0) end += count + 2;
    return end > bytes.length ? -1 : end;
  }
  if (!AGGREGATES.includes(type)) return end;
  for (let left = count * ("%|".includes(type) ? 2 : 1); left > 0 && end !== -1; left -= 1) end = frameEnd(bytes, end);
  return end;
}

/** Returns the frame at `at` of a complete reply, with each INFO in it changed, and the end of the frame. */
function withInfo(bytes: Buffer, at: number, info: (text: string) => string): { bytes: Buffer; end: number } {
  const line = bytes.indexOf("\r\n", at) + 2;
  const type = String.fromCharCode(bytes[at] ?? 0);
  const count = Number(bytes.subarray(at + 1, line - 2).toString("latin1"));
  if (BULKS.includes(type) && count >= 0) {
    const end = line + count + 2;
    const text = bytes.subarray(line, line + count).toString();
    if (!/^redis_version:/m.test(text)) return { bytes: bytes.subarray(at, end), end };
    const changed = Buffer.from(info(text));
    return { bytes: Buffer.concat([Buffer.from(`${type}${changed.length}\r\n`), changed, Buffer.from("\r\n")]), end };
  }
  const parts = [bytes.subarray(at, line)];
  let end = line;
  const elements = AGGREGATES.includes(type) ? count * ("%|".includes(type) ? 2 : 1) : 0;
  for (let left = elements; left > 0; left -= 1) {
    const part = withInfo(bytes, end, info);
    parts.push(part.bytes);
    end = part.end;
  }
  return { bytes: Buffer.concat(parts), end };
}
