/** `Mutex` on one Redis, and `RedlockMutex` on a majority of several. Both use the keys of redis-semaphore. */
import { systemClock } from "@x/redlock-core";
import { inTime } from "@x/redlock-core/kit";
import { Lock, type LockOptions } from "./lock.ts";
import { mutexScripts, type RedisClient, run } from "./scripts.ts";

/** Checks a constructor's key and throws the errors of redis-semaphore. */
export function checkKey(key: string): void {
  if (!key) throw new Error('"key" is required');
  if (typeof key !== "string") throw new Error('"key" must be a string');
}

export function checkClient(client: RedisClient | null | undefined): void {
  if (!client) throw new Error('"client" is required');
}

export function checkClients(clients: readonly RedisClient[] | null | undefined): void {
  if (!Array.isArray(clients)) throw new Error('"clients" array is required');
}

abstract class MutexOnKey extends Lock {
  protected readonly _key: string;

  protected constructor(key: string, options: LockOptions | undefined) {
    super(options);
    checkKey(key);
    this._key = `mutex:${key}`;
  }

  protected _ask(client: RedisClient, operation: keyof typeof mutexScripts): Promise<boolean> {
    return run(client, mutexScripts[operation], this._key, this._identifier, this._lockTimeout);
  }
}

export class Mutex extends MutexOnKey {
  protected readonly _kind: string = "mutex";
  readonly #client: RedisClient;

  constructor(client: RedisClient, key: string, options?: LockOptions) {
    checkClient(client);
    super(key, options);
    this.#client = client;
  }

  protected async _acquire(): Promise<boolean> {
    return await this._ask(this.#client, "acquire");
  }

  protected async _refresh(): Promise<boolean> {
    return await this._ask(this.#client, "refresh");
  }

  protected async _release(): Promise<void> {
    await this._ask(this.#client, "release");
  }
}

/** Longest wait for a node. A release that follows the request undoes a late grant. */
const NODE_TIMEOUT_MS = 500;
const SHARE_OF_LEASE = 6;

export class RedlockMutex extends MutexOnKey {
  protected readonly _kind: string = "redlock-mutex";
  readonly #clients: readonly RedisClient[];

  constructor(clients: readonly RedisClient[], key: string, options?: LockOptions) {
    checkClients(clients);
    super(key, options);
    this.#clients = [...clients];
  }

  protected async _acquire(): Promise<boolean> {
    const answers = await this.#everywhere("acquire");
    if (this.#isMajority(answers, true)) return true;
    await this._release();
    return false;
  }

  protected async _refresh(): Promise<boolean> {
    const answers = await this.#everywhere("refresh");
    if (this.#isMajority(answers, true)) {
      // A node that lost the lock acquires it again. The node counts from the next refresh on.
      const without = this.#clients.filter((_, node) => answers[node] === false);
      for (const client of without) void this._ask(client, "acquire").catch(() => false);
      return true;
    }
    if (this.#isMajority(answers, false)) return false;
    throw new Error(`${this._kind} ${this._key}: too few nodes answered`);
  }

  protected async _release(): Promise<void> {
    await this.#everywhere("release");
  }

  #isMajority(answers: readonly (boolean | undefined)[], wanted: boolean): boolean {
    return answers.filter((answer) => answer === wanted).length > this.#clients.length / 2;
  }

  /** Resolves with the replies of all nodes. Undefined for a node that failed or did not answer in time. */
  #everywhere(operation: keyof typeof mutexScripts): Promise<(boolean | undefined)[]> {
    const timeoutMs = Math.min(NODE_TIMEOUT_MS, this._lockTimeout / SHARE_OF_LEASE);
    const inTimeOf = { timeoutMs, otherwise: "the node has not answered in time", keepAlive: true };
    return Promise.all(
      this.#clients.map((client) => inTime(systemClock, this._ask(client, operation), inTimeOf).catch(() => undefined)),
    );
  }
}
