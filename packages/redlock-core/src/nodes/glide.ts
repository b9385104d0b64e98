/**
 * Adapter for Valkey GLIDE 2.5 and later: a standalone client. No other file knows this client.
 *
 * GLIDE promises less than a `LockNode` must. The adapter makes up for the differences:
 * - While disconnected, GLIDE keeps a request and sends it late. Its `requestTimeout`, set to `nodeTimeout` here,
 *   limits the delay: a request that has waited longer is never sent.
 * - If more than 50 requests are under way, they overtake each other in GLIDE. The adapter passes on fewer and keeps
 *   the rest in a queue.
 * - GLIDE does not report that its connection was lost or replaced. After a failed or late request the adapter checks
 *   the node, and detects a new connection by its `CLIENT ID`.
 * - GLIDE keeps trying to connect even after `createClient` has failed. The adapter therefore first checks that the
 *   port can be reached, and pauses before it calls GLIDE again.
 */
import { connect } from "node:net";
import { backOffMs } from "../kit/back-off.ts";
import { inTime } from "../kit/signals.ts";
import type { NodeScript } from "../rules/script.ts";
import { deadConnectionMs } from "../rules/silence.ts";
import { ClientNode, NO_ANSWER, NO_HANDSHAKE, type NodeSettings, reconnectDelayMs } from "./connection.ts";
import { type GlideConnection, GlideRequests, serverError } from "./glide-requests.ts";
import { type LockNode, notConnected, type OnGap } from "./node.ts";
import { Subscriptions } from "./subscriptions.ts";

/** The part of GLIDE's configuration that the adapter reads. */
export interface GlideAddresses {
  readonly addresses: readonly { readonly host: string; readonly port?: number | undefined }[];
  readonly advancedConfiguration?: object | undefined;
}

/** The class `GlideClient` of `@valkey/valkey-glide`. */
export interface GlideClientClass<Configuration extends GlideAddresses> {
  createClient(options: Configuration): Promise<GlideConnection>;
}

/**
 * Pause in ms before GLIDE reconnects by itself after a failed attempt. It is long because GLIDE keeps trying forever,
 * for each client that failed to connect.
 */
const GLIDE_PAUSE = { numberOfRetries: 1, exponentBase: 2, factor: 2_500, jitterPercent: 0 };

/**
 * Overrides for settings of the caller that would change the form of a reply, or the time at which a request is sent.
 */
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

/** Pauses before the next attempt if the server accepts a connection but refuses GLIDE or does not answer. */
const REFUSED_PAUSE = { delayMs: 1_000, maxDelayMs: 60_000 };

const RECONNECTED = "its connection was lost and made again";

type Create = (overrides: object, connectionTimeout: number) => Promise<GlideConnection>;

export class GlideNode extends ClientNode implements LockNode {
  readonly name: string;
  readonly #address: { readonly host: string; readonly port: number };
  readonly #create: Create;
  readonly #requests: GlideRequests;
  readonly #subscriptions: Subscriptions<GlideConnection>;
  #client: GlideConnection | undefined;
  /** `CLIENT ID` of the client's connection. It changes if GLIDE reconnects. */
  #connectionId: unknown;
  /** Cancels the replacement of a client that gives no sign of life. */
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
    this.#requests = new GlideRequests({
      clock: settings.clock,
      timeoutMs: settings.nodeTimeoutMs,
      onFailure: (client, error) => this.#failed(client, error),
    });
    this.#subscriptions = new Subscriptions({
      subscribe: (client, channel) => this.#subscribe(client, channel),
      unsubscribe: (client, channel) => client.unsubscribeLazy([channel]),
    });
    void this.#connect(0);
  }

  /** Creates a node whose clients are made from the configuration. */
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
    return await this.scripts.run((command) => this.#requests.send(client, command), script, keys, args);
  }

  subscribe(channel: string, listener: (message: string) => void, onGap?: OnGap): Promise<() => void> {
    return this.#subscriptions.add(channel, listener, onGap);
  }

  async config(name: string): Promise<string | undefined> {
    if (this.#client === undefined) return undefined;
    const [setting] = (await this.#requests.send(this.#client, ["CONFIG", "GET", name])) as {
      readonly value: unknown;
    }[];
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

  /** Creates a client, and repeats failed attempts until the node is closed. Never rejects. */
  async #connect(failures: number): Promise<void> {
    let isPortOpen = false;
    try {
      await this.#checkPort();
      isPortOpen = true;
      const client = await this.#open();
      if (this.isClosed) client.close();
      else this.#opened(client, await client.customCommand(["CLIENT", "ID"]).catch(() => undefined));
    } catch (error) {
      if (this.isClosed) return;
      this.noteError(error);
      this.become("down");
      const pauseMs = isPortOpen ? backOffMs({ failures: failures + 1, ...REFUSED_PAUSE }) : reconnectDelayMs(failures);
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
    this.#subscriptions.useConnection(client);
    this.become("ready");
  }

  async #open(): Promise<GlideConnection> {
    const { clock, nodeTimeoutMs } = this.settings;
    const deadMs = deadConnectionMs(nodeTimeoutMs);
    const callback = ({ channel, message }: { readonly channel: unknown; readonly message: unknown }): void =>
      this.#subscriptions.deliver(String(channel), String(message));
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

  /** Resolves if the server's port accepts a connection. */
  async #checkPort(): Promise<void> {
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

  #failed(client: GlideConnection, error: unknown): void {
    const { name } = error as Error;
    if (name === "ConnectionError" || name === "ClosingError") this.#replace(client, error);
    if (name !== "TimeoutError" || client !== this.#client || this.#cancelDeadline !== undefined) return;
    this.#check(client);
    this.#checkPort().catch((reason: unknown) => this.#replace(client, reason));
  }

  /**
   * Asks for a sign of life and replaces the client if there is none. Also replaces the client if GLIDE has
   * reconnected.
   *
   * WAIT for no replica is answered immediately. Its argument is the only way to let GLIDE wait longer than
   * `requestTimeout` for an answer.
   */
  #check(client: GlideConnection): void {
    if (this.#cancelDeadline !== undefined) return;
    const deadMs = deadConnectionMs(this.settings.nodeTimeoutMs);
    const cancel = this.settings.clock.schedule(deadMs, () => this.#replace(client, new Error(NO_ANSWER)));
    this.#cancelDeadline = cancel;
    const cancelDeadline = (): void => {
      cancel();
      if (this.#cancelDeadline === cancel) this.#cancelDeadline = undefined;
    };
    client
      .customCommand(["WAIT", "0", String(deadMs)])
      .catch((error: unknown) => {
        // An error reply is a sign of life.
        if ((error as Error).name !== "RequestError") throw error;
      })
      .then(() => client.customCommand(["CLIENT", "ID"]))
      .then(
        (id) => {
          cancelDeadline();
          if (id !== this.#connectionId) this.#replace(client, new Error(RECONNECTED));
        },
        (error: unknown) => {
          cancelDeadline();
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

  /** Drops the client and rejects all waiting requests. */
  #drop(): void {
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
    this.#subscriptions.loseConnection();
    const client = this.#client;
    this.#client = undefined;
    this.#requests.rejectWaiting(() => notConnected(this));
    client?.close();
  }

  /**
   * Subscribes to a channel. GLIDE does not report a refusal, so a subscription that is not confirmed in time counts as
   * refused.
   */
  async #subscribe(client: GlideConnection, channel: string): Promise<void> {
    try {
      await client.subscribe([channel], this.settings.nodeTimeoutMs);
    } catch (error) {
      // GLIDE keeps trying to subscribe. That is only wanted for a channel that was confirmed before.
      if (!this.#subscriptions.wasConfirmed(channel)) client.unsubscribeLazy([channel]).catch(() => undefined);
      throw serverError(error);
    }
  }
}
