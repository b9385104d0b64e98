/** Semaphores on one Redis with the keys of redis-semaphore. A holder has one permit or several permits. */
import { Lock, type LockOptions } from "./lock.ts";
import { checkClient, checkClients, checkKey } from "./mutex.ts";
import { type RedisClient, run, semaphoreScript } from "./scripts.ts";

function checkCount(name: string, count: number): void {
  if (!count) throw new Error(`"${name}" is required`);
  if (typeof count !== "number") throw new Error(`"${name}" must be a number`);
}

/** Returns the only client. Throws with the reason if there are several clients. */
function onlyClient(clients: readonly RedisClient[], kind: string): RedisClient {
  checkClients(clients);
  const [client] = clients;
  if (client !== undefined && clients.length === 1) return client;
  throw new Error(
    `${kind} takes one client, got ${clients.length}: three callers who are each refused by another of three nodes would hold two permits. Use one Redis.`,
  );
}

export class Semaphore extends Lock {
  protected readonly _kind: string = "semaphore";
  protected readonly _key: string;
  readonly #client: RedisClient;
  readonly #limit: number;

  constructor(client: RedisClient, key: string, limit: number, options?: LockOptions) {
    super(options);
    checkClient(client);
    checkKey(key);
    checkCount("limit", limit);
    this.#client = client;
    this.#limit = limit;
    this._key = `semaphore:${key}`;
  }

  protected get _members(): readonly string[] {
    return [this._identifier];
  }

  protected async _acquire(): Promise<boolean> {
    return await this.#run("acquire");
  }

  protected async _refresh(): Promise<boolean> {
    return await this.#run("refresh");
  }

  protected async _release(): Promise<void> {
    await this.#run("release");
  }

  #run(operation: string): Promise<boolean> {
    const { _key: key, _lockTimeout: lease } = this;
    return run(this.#client, semaphoreScript, key, operation, this.#limit, lease, ...this._members);
  }
}

export class MultiSemaphore extends Semaphore {
  protected override readonly _kind: string = "multi-semaphore";
  readonly #permits: number;

  constructor(client: RedisClient, key: string, limit: number, permits: number, options?: LockOptions) {
    super(client, key, limit, options);
    checkCount("permits", permits);
    this.#permits = permits;
  }

  protected override get _members(): readonly string[] {
    return Array.from({ length: this.#permits }, (_, index) => `${this._identifier}_${index}`);
  }
}

export class RedlockSemaphore extends Semaphore {
  protected override readonly _kind: string = "redlock-semaphore";

  constructor(clients: readonly RedisClient[], key: string, limit: number, options?: LockOptions) {
    super(onlyClient(clients, "RedlockSemaphore"), key, limit, options);
  }
}

export class RedlockMultiSemaphore extends MultiSemaphore {
  protected override readonly _kind: string = "redlock-multi-semaphore";

  constructor(clients: readonly RedisClient[], key: string, limit: number, permits: number, options?: LockOptions) {
    super(onlyClient(clients, "RedlockMultiSemaphore"), key, limit, permits, options);
  }
}
