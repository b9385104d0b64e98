/**
 * This adapter is for Valkey GLIDE 2.5 and later: a standalone client. No other file knows this client.
 *
 * GLIDE promises less than a `LockNode` must, so the adapter holds it to that:
 * - GLIDE keeps a request while it is disconnected, and sends it late. Its `requestTimeout` bounds that, and is
 *   `nodeTimeout` here. A request that waited for longer is never sent.
 * - More than 50 requests at a time overtake each other in GLIDE. It gets fewer; the others wait here.
 * - GLIDE does not tell when its connection is lost or replaced. A request that fails or is late has the node looked
 *   at, and `CLIENT ID` tells a new connection from the old one.
 * - GLIDE never gives up a connection that it could not make, even if `createClient` has failed. The port is tried
 *   before, and GLIDE asked again only after pauses.
 */
import { connect } from "node:net";
import { backOffMs } from "../kit/back-off.ts";
import { inTime } from "../kit/signals.ts";
import type { NodeScript } from "../rules/script.ts";
import { deadConnectionMs } from "../rules/silence.ts";
import { ClientNode, NO_ANSWER, NO_HANDSHAKE, type NodeSettings, reconnectDelayMs } from "./connection.ts";
import { type LockNode, notConnected, type OnGap } from "./node.ts";
import { Subscriptions } from "./subscriptions.ts";

/** The part of a GLIDE client that is used. */
export interface GlideConnection {
  customCommand(args: string[]): Promise<unknown>;
  subscribe(channels: Iterable<string>, timeoutMs: number): Promise<void>;
  unsubscribeLazy(channels: Iterable<string>): Promise<void>;
  close(): void;
}

/** The part of GLIDE's configuration that the adapter reads. */
export interface GlideAddresses {
  readonly addresses: readonly { readonly host: string; readonly port?: number | undefined }[];
  readonly advancedConfiguration?: object | undefined;
}

/** The class `GlideClient` of `@valkey/valkey-glide`. */
export interface GlideClientClass<Configuration extends GlideAddresses> {
  createClient(options: Configuration): Promise<GlideConnection>;
}

/** GLIDE has a queue of 50 requests; those that find no room in it may overtake each other. */
const MAX_IN_GLIDE = 32;

/**
 * The pause, in ms, before GLIDE makes a connection again by itself, if it could not at once. It is long because GLIDE
 * goes on with it for ever for each client that could not be made.
 */
const GLIDE_PAUSE = { numberOfRetries: 1, exponentBase: 2, factor: 2_500, jitterPercent: 0 };

/** Settings of the caller's that would change what a reply is, or when a request is sent. */
const GLIDE_DEFAULTS = {
  protocol: undefined,
  defaultDecoder: undefined,
  readFrom: undefined,
  inflightRequestsLimit: undefined,
  clientSideCache: undefined,
  clientCircuitBreaker: undefined,
  compression: undefined,
  lazyConnect: false,
};

/** The pauses before a server is asked again that takes a connection but refuses GLIDE, or does not answer it. */
const REFUSED_PAUSE = { delayMs: 1_000, maxDelayMs: 60_000 };

const RECONNECTED = "its connection was lost and made again";

interface Asked {
  readonly client: GlideConnection;
  readonly command: string[];
  readonly sinceMs: number;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

type Create = (overrides: object, connectionTimeout: number) => Promise<GlideConnection>;

export class GlideNode extends ClientNode implements LockNode {
  readonly name: string;
  readonly #address: { readonly host: string; readonly port: number };
  readonly #create: Create;
  readonly #subscriptions: Subscriptions<GlideConnection>;
  #client: GlideConnection | undefined;
  /** What tells the connection of the client from one that GLIDE made later. */
  #connectionId: unknown;
  /** Requests that wait until GLIDE has room, in order. */
  #waiting: Asked[] = [];
  #inGlide = 0;
  /** Cancels what is to happen if the client gives no sign of life. */
  #cancelDeadline: (() => void) | undefined;
  #cancelRetry: (() => void) | undefined;

  private constructor(
    address: { readonly host: string; readonly port: number },
    create: Create,
    settings: NodeSettings,
  ) {
    super(settings);
    this.name = `${address.host}:${address.port}`;
    this.#address = address;
    this.#create = create;
    this.#subscriptions = new Subscriptions({
      subscribe: (client, channel) => this.#subscribe(client, channel),
      unsubscribe: (client, channel) => client.unsubscribeLazy([channel]),
    });
    void this.#connect(0);
  }

  /** Makes clients of its own from the configuration. */
  static of<Configuration extends GlideAddresses>(
    glide: GlideClientClass<Configuration>,
    configuration: Configuration,
    settings: NodeSettings,
  ): GlideNode {
    const [address, ...others] = configuration.addresses;
    if (address === undefined || others.length > 0)
      throw new RangeError(
        `configuration.addresses must be of one server, which is one node, got ${configuration.addresses.length}`,
      );
    return new GlideNode(
      { host: address.host, port: address.port ?? 6379 },
      (overrides, connectionTimeout) => {
        const advancedConfiguration = { ...configuration.advancedConfiguration, connectionTimeout };
        return glide.createClient({ ...configuration, ...overrides, advancedConfiguration });
      },
      settings,
    );
  }

  async eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const client = this.#client;
    if (client === undefined || this.state !== "ready") throw notConnected(this);
    return await this.scripts.run((command) => this.#send(client, command), script, keys, args);
  }

  subscribe(channel: string, listener: (message: string) => void, onGap?: OnGap): Promise<() => void> {
    return this.#subscriptions.add(channel, listener, onGap);
  }

  async config(name: string): Promise<string | undefined> {
    if (this.#client === undefined) return undefined;
    const [setting] = (await this.#send(this.#client, ["CONFIG", "GET", name])) as { readonly value: unknown }[];
    return typeof setting?.value === "string" ? setting.value : undefined;
  }

  checkMessages(): void {
    if (this.#client !== undefined) this.#check(this.#client);
  }

  close(): Promise<void> {
    this.isClosed = true;
    this.#cancelRetry?.();
    this.#drop();
    this.#subscriptions.close(new Error(`${this.name}: closed`));
    this.become("down");
    return Promise.resolve();
  }

  /** Makes a client, however often it takes. Never rejects. */
  async #connect(failures: number): Promise<void> {
    let isReached = false;
    try {
      await this.#reach();
      isReached = true;
      const client = await this.#open();
      if (this.isClosed) client.close();
      else this.#opened(client, await client.customCommand(["CLIENT", "ID"]).catch(() => undefined));
    } catch (error) {
      if (this.isClosed) return;
      this.noteError(error);
      this.become("down");
      const pauseMs = isReached ? backOffMs({ failures: failures + 1, ...REFUSED_PAUSE }) : reconnectDelayMs(failures);
      this.#cancelRetry = this.settings.clock.schedule(pauseMs, () => void this.#connect(failures + 1));
    }
  }

  #opened(client: GlideConnection, connectionId: unknown): void {
    if (this.isClosed) {
      client.close();
      return;
    }
    this.#client = client;
    this.#connectionId = connectionId;
    this.scripts.forget();
    this.#subscriptions.use(client);
    this.become("ready");
  }

  async #open(): Promise<GlideConnection> {
    const { clock, nodeTimeoutMs } = this.settings;
    const deadMs = deadConnectionMs(nodeTimeoutMs);
    const callback = ({ channel, message }: { readonly channel: unknown; readonly message: unknown }): void =>
      this.#subscriptions.heard(String(channel), String(message));
    const opening = this.#create(
      {
        ...GLIDE_DEFAULTS,
        requestTimeout: nodeTimeoutMs,
        connectionBackoff: GLIDE_PAUSE,
        pubsubSubscriptions: { channelsAndPatterns: {}, callback },
      },
      deadMs,
    );
    const late = (client: GlideConnection): void => client.close();
    return await inTime(clock, opening, { timeoutMs: deadMs, otherwise: NO_HANDSHAKE, late });
  }

  /** Resolves if the server's port takes a connection. */
  async #reach(): Promise<void> {
    const socket = connect(this.#address);
    socket.unref();
    const reached = new Promise<void>((resolve, reject) => {
      socket.on("connect", resolve);
      socket.on("error", reject);
    });
    try {
      const { clock, nodeTimeoutMs } = this.settings;
      await inTime(clock, reached, { timeoutMs: deadConnectionMs(nodeTimeoutMs), otherwise: NO_ANSWER });
    } finally {
      socket.destroy();
    }
  }

  #send(client: GlideConnection, command: string[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ client, command, sinceMs: this.settings.clock.monotonicMs(), resolve, reject });
      this.#sendWaiting();
    });
  }

  /** Hands over to GLIDE what it has room for. What has waited for too long is not sent: nobody wants it any more. */
  #sendWaiting(): void {
    while (this.#inGlide < MAX_IN_GLIDE) {
      const asked = this.#waiting.shift();
      if (asked === undefined) return;
      const { client, command, sinceMs, resolve, reject } = asked;
      if (this.settings.clock.monotonicMs() - sinceMs > this.settings.nodeTimeoutMs) {
        reject(new Error("not sent in time: the requests before it were not answered"));
        continue;
      }
      this.#inGlide += 1;
      client.customCommand(command).then(
        (reply) => {
          resolve(reply);
          this.#answered();
        },
        (error: unknown) => {
          reject(serverError(error));
          this.#answered();
          this.#failed(client, error);
        },
      );
    }
  }

  #answered(): void {
    this.#inGlide -= 1;
    this.#sendWaiting();
  }

  #failed(client: GlideConnection, error: unknown): void {
    const { name } = error as Error;
    if (name === "ConnectionError" || name === "ClosingError") this.#replace(client, error);
    if (name !== "TimeoutError" || client !== this.#client || this.#cancelDeadline !== undefined) return;
    this.#check(client);
    this.#reach().catch((reason: unknown) => this.#replace(client, reason));
  }

  /**
   * Asks for a sign of life, without which the client is replaced. It is also replaced if its connection is not the
   * one that it began with.
   *
   * WAIT for no replica is answered at once. It is the only such request for whose answer GLIDE waits as long as the
   * request says.
   */
  #check(client: GlideConnection): void {
    if (this.#cancelDeadline !== undefined) return;
    const deadMs = deadConnectionMs(this.settings.nodeTimeoutMs);
    const cancel = this.settings.clock.schedule(deadMs, () => this.#replace(client, new Error(NO_ANSWER)));
    this.#cancelDeadline = cancel;
    const relax = (): void => {
      cancel();
      if (this.#cancelDeadline === cancel) this.#cancelDeadline = undefined;
    };
    client
      .customCommand(["WAIT", "0", String(deadMs)])
      .catch((error: unknown) => {
        // A server that refuses the command lives.
        if ((error as Error).name !== "RequestError") throw error;
      })
      .then(() => client.customCommand(["CLIENT", "ID"]))
      .then(
        (id) => {
          relax();
          if (id !== this.#connectionId) this.#replace(client, new Error(RECONNECTED));
        },
        (error: unknown) => {
          relax();
          if ((error as Error).name !== "TimeoutError") this.#failed(client, error);
        },
      );
  }

  #replace(client: GlideConnection, why: unknown): void {
    if (client !== this.#client) return;
    this.#drop();
    this.noteError(why);
    this.become("down");
    void this.#connect(0);
  }

  /** Gives up the client, with all that was not answered. */
  #drop(): void {
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
    this.#subscriptions.lose();
    const client = this.#client;
    this.#client = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { reject } of waiting) reject(notConnected(this));
    client?.close();
  }

  /** GLIDE tells nobody that the server refused, so what is not confirmed in time counts as refused. */
  async #subscribe(client: GlideConnection, channel: string): Promise<void> {
    try {
      await client.subscribe([channel], this.settings.nodeTimeoutMs);
    } catch (error) {
      // GLIDE goes on asking, which is right for what was once confirmed only.
      if (!this.#subscriptions.wasConfirmed(channel)) client.unsubscribeLazy([channel]).catch(() => undefined);
      throw serverError(error);
    }
  }
}

/** The codes that GLIDE replaces in a server's error. */
const CODES: Readonly<Record<string, string>> = {
  ResponseError: "ERR",
  NoScriptError: "NOSCRIPT",
  BusyLoadingError: "LOADING",
  ReadOnly: "READONLY",
};

/** Returns the error with the server's own text: its code, a space, what it says. */
function serverError(error: unknown): Error {
  const { name, message } = error as Error;
  if (name !== "RequestError") return error as Error;
  const [, code = "", rest = message] =
    /^(?:An error was signalled by the server: - )?(\w+): (.*)$/s.exec(message) ?? [];
  return new Error(code === "" ? message : `${CODES[code] ?? code} ${rest}`);
}
