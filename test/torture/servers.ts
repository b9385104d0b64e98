/** The servers of a run, each with a proxy per client, and what faults do to them. */
import { setTimeout as delay } from "node:timers/promises";
import {
  type FaultyProxy,
  type PostgresServer,
  type RedisServer,
  startPostgres,
  startProxy,
  startRedis,
  until,
} from "@x/test-support";

/** A server behind proxies: one proxy for each client, by the client's number. */
export interface Struck extends AsyncDisposable {
  readonly clients: FaultyProxy[];
  addClient(): Promise<FaultyProxy>;
  freeze(): void;
  thaw(): void;
  /** Kills the server and starts it, after `downMs`. */
  restart(downMs: number): Promise<void>;
  /**
   * Promotes a replica. A server that keeps its data hands over all of it. Any other server is killed `lagMs` after
   * its replica has received the last byte.
   */
  promote(lagMs: number): Promise<void>;
}

const WITH_REPLICAS = { args: ["--repl-diskless-sync-delay", "0"] };

export class StruckRedis implements Struck {
  readonly clients: FaultyProxy[] = [];
  readonly #keepsData: boolean;
  #server: RedisServer;

  private constructor(server: RedisServer, keepsData: boolean) {
    this.#server = server;
    this.#keepsData = keepsData;
  }

  static async start(keepsData: boolean): Promise<StruckRedis> {
    return new StruckRedis(await startRedis({ ...WITH_REPLICAS, persistence: keepsData }), keepsData);
  }

  async addClient(): Promise<FaultyProxy> {
    const proxy = await startProxy({ path: this.#server.path });
    this.clients.push(proxy);
    return proxy;
  }

  freeze(): void {
    this.#server.freeze();
  }

  thaw(): void {
    this.#server.thaw();
  }

  async restart(downMs: number): Promise<void> {
    await this.#server.kill();
    await delay(downMs);
    await this.#server.restart();
  }

  async promote(lagMs: number): Promise<void> {
    const old = this.#server;
    await using link = await startProxy({ host: old.host, port: old.port });
    const replica = await startRedis({ ...WITH_REPLICAS, persistence: this.#keepsData });
    const reports = async (text: string): Promise<boolean> => String(await replica.call("INFO")).includes(text);
    const source = this.#keepsData ? old : link;
    await replica.call("REPLICAOF", source.host, source.port);
    await until(() => reports("master_link_status:up"));
    if (this.#keepsData) {
      // A replica that is killed before its file has been rewritten starts again without the copied data.
      await until(() => reports("aof_rewrite_in_progress:0"));
      await until(() => reports("aof_rewrite_scheduled:0"));
      // The old server makes its clients wait until the replica has all that it has.
      await old.call("FAILOVER");
      await until(() => reports("role:master"));
    } else {
      link.blackhole();
      await delay(lagMs);
      await old.kill();
      await replica.call("REPLICAOF", "NO", "ONE");
    }
    this.#server = replica;
    for (const proxy of this.clients) {
      proxy.redirect({ path: replica.path });
      proxy.drop();
    }
    await old.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const proxy of this.clients) await proxy.stop();
    await this.#server.stop();
  }
}

export class StruckPostgres implements Struck {
  readonly clients: FaultyProxy[] = [];
  readonly #server: PostgresServer;

  private constructor(server: PostgresServer) {
    this.#server = server;
  }

  static async start(): Promise<StruckPostgres> {
    return new StruckPostgres(await startPostgres());
  }

  async addClient(): Promise<FaultyProxy> {
    const proxy = await startProxy({ host: this.#server.host, port: this.#server.port });
    this.clients.push(proxy);
    return proxy;
  }

  /** The sessions are processes of their own, so it is the network before the server that is silent. */
  freeze(): void {
    for (const proxy of this.clients) proxy.blackhole();
  }

  thaw(): void {
    for (const proxy of this.clients) {
      proxy.heal();
      proxy.drop();
    }
  }

  async restart(downMs: number): Promise<void> {
    await this.#server.shutDown();
    await delay(downMs);
    await this.#server.start();
  }

  async promote(): Promise<void> {
    await Promise.reject(new Error("no replica of Postgres is started here"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const proxy of this.clients) await proxy.stop();
    await this.#server.stop();
  }
}
