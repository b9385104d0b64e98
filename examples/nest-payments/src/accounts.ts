import { setTimeout as delay } from "node:timers/promises";
import { Injectable, type OnApplicationShutdown } from "@nestjs/common";
import { currentLock, Locked } from "@x/nestjs";
import { fence } from "@x/redlock-core";
import { Redis } from "ioredis";
import { redisUrl } from "./settings.ts";

export interface Change {
  /** A change that is asked for twice is made once. */
  readonly id: string;
  readonly accountId: string;
  readonly amount: number;
}

export interface Account {
  readonly balance: number;
  readonly changes: readonly string[];
}

/** A store without transactions: read, think, write. Two changes at a time, and one of them is lost. */
@Injectable()
export class Accounts implements OnApplicationShutdown {
  readonly #redis = new Redis(redisUrl);

  async read(accountId: string): Promise<Account> {
    return parse(await this.#redis.get(keyOf(accountId)));
  }

  /** Takes the same lock as the jobs of this account. A replica that dies keeps it for `ttl` at most. */
  @Locked(({ accountId }: Change) => `account:${accountId}`, { ttl: 2_000 })
  async withdraw(change: Change): Promise<void> {
    await this.change(change, currentLock().fencingToken);
  }

  /** Rejects with a `FencedOffError` for whoever was frozen until somebody else had the lock. */
  async change({ id, accountId, amount }: Change, fencingToken: number): Promise<void> {
    const key = keyOf(accountId);
    const account = await fence(this.#redis, key, fencingToken);
    const { balance, changes } = parse(await account.get(key));
    if (changes.includes(id)) return;
    await delay(2);
    await account.set(key, JSON.stringify({ balance: balance + amount, changes: [...changes, id] }));
  }

  async closeBooks(entry: string): Promise<void> {
    await this.#redis.rpush("closings", entry);
  }

  /** After the last job, the last tick and the last request. */
  async onApplicationShutdown(): Promise<void> {
    await this.#redis.quit();
  }
}

function keyOf(accountId: string): string {
  return `balance:${accountId}`;
}

function parse(stored: string | null): Account {
  return stored === null ? { balance: 0, changes: [] } : (JSON.parse(stored) as Account);
}
