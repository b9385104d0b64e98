/** `Mutex` on one Redis, and `RedlockMutex` on a majority of several, on the keys of redis-semaphore. */
import { systemClock } from "@x/redlock-core";
import { Lock, type LockOptions } from "./lock.ts";
import { mutexScripts, type RedisClient, run } from "./scripts.ts";

/** Checks what every constructor of redis-semaphore takes, with its messages. */
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

export class Mutex extends Lock {
  protected readonly _kind: string = "mutex";
  protected readonly _key: string;
  readonly #client: RedisClient;

  constructor(client: RedisClient, key: string, options?: LockOptions) {
    super(options);
    checkClient(client);
    checkKey(key);
    this.#client = client;
    this._key = `mutex:${key}`;
  }

  protected async _acquire(): Promise<boolean> {
    return await run(this.#client, mutexScripts.acquire, this._key, this._identifier, this._lockTimeout);
  }

  protected async _refresh(): Promise<boolean> {
    return await run(this.#client, mutexScripts.refresh, this._key, this._identifier, this._lockTimeout);
  }

  protected async _release(): Promise<void> {
    await run(this.#client, mutexScripts.release, this._key, this._identifier);
  }
}

/** A node that has not answered for so long is left out: what it does later is undone by a release behind it. */
const NODE_TIMEOUT_MS = 500;
const SHARE_OF_LEASE = 6;

export class RedlockMutex extends Lock {
  protected readonly _kind: string = "redlock-mutex";
  protected readonly _key: string;
  readonly #clients: readonly RedisClient[];

  constructor(clients: readonly RedisClient[], key: string, options?: LockOptions) {
    super(options);
    checkClients(clients);
    checkKey(key);
    this.#clients = [...clients];
    this._key = `mutex:${key}`;
  }

  protected async _acquire(): Promise<boolean> {
    const answers = await this.#everywhere((client) =>
      run(client, mutexScripts.acquire, this._key, this._identifier, this._lockTimeout),
    );
    if (this.#isMajority(answers, true)) return true;
    await this._release();
    return false;
  }

  protected async _refresh(): Promise<boolean> {
    const answers = await this.#everywhere((client) =>
      run(client, mutexScripts.refresh, this._key, this._identifier, this._lockTimeout),
    );
    if (this.#isMajority(answers, true)) {
      // A node that lost it gets it again, which counts from the next refresh on.
      const without = this.#clients.filter((_, node) => answers[node] === false);
      for (const client of without) {
        void run(client, mutexScripts.acquire, this._key, this._identifier, this._lockTimeout).catch(() => false);
      }
      return true;
    }
    if (this.#isMajority(answers, false)) return false;
    throw new Error(`${this._kind} ${this._key}: too few nodes answered`);
  }

  protected async _release(): Promise<void> {
    await this.#everywhere((client) => run(client, mutexScripts.release, this._key, this._identifier));
  }

  #isMajority(answers: readonly (boolean | undefined)[], wanted: boolean): boolean {
    return answers.filter((answer) => answer === wanted).length > this.#clients.length / 2;
  }

  /** Undefined is the answer of a node that failed, or has not answered in time. */
  #everywhere(ask: (client: RedisClient) => Promise<boolean>): Promise<(boolean | undefined)[]> {
    const timeoutMs = Math.min(NODE_TIMEOUT_MS, this._lockTimeout / SHARE_OF_LEASE);
    return Promise.all(
      this.#clients.map(
        (client) =>
          new Promise<boolean | undefined>((resolve) => {
            const cancel = systemClock.schedule(timeoutMs, () => resolve(undefined), { keepAlive: true });
            const end = (answer: boolean | undefined): void => {
              cancel();
              resolve(answer);
            };
            ask(client).then(end, () => end(undefined));
          }),
      ),
    );
  }
}
