/**
 * Compares the locks of keys, which the lane's scripts acquire with jobs and release with their ends, with a model of
 * the holders: jobs, plain code, and waiters.
 */
import { memberOf, putInLine, takeFromLine } from "@x/test-support";
import type { Redis } from "ioredis";
import { NODE_KEYS } from "../../../packages/redlock-core/src/rules/keys.ts";
import type { LaneLocks, TakenJob } from "../../../packages/workers/src/lane/taken-job.ts";
import { type HandOut, LaneViolation } from "./checks.ts";
import { LOCK_PREFIX } from "./names.ts";

/** Separates the key from the slot number in the name of a lock. The first slot has neither. */
const SEPARATOR = "\u001f";
/** TTL of locks, longer than any schedule takes. */
export const LOCK_TTL_MS = 600_000;
const TOKEN_DIGITS = 40;
const PLAIN = "plain code";
/** The plain code that waits for a lock. */
const WAITER = memberOf(1, "channel#waiter");
/** How far in µs the node's clock may have been set back. */
const AHEAD_US = 5_000_000;

/** Returns the names of the locks of keys. Each slot has a lock of its own. */
export function lockNames(keys: readonly string[], slots: number): string[] {
  const further = Array.from({ length: slots - 1 }, (_, index) => SEPARATOR + (index + 1));
  return keys.flatMap((key) => ["", ...further].map((slot) => key + slot));
}

interface Holder {
  readonly token: string;
  /** The job with which the lock was acquired. Undefined for plain code. */
  readonly id: string | undefined;
}

export class StepLocks implements LaneLocks {
  readonly #redis: Redis;
  readonly #isOn: boolean;
  readonly #holders = new Map<string, Holder>();
  readonly #waited = new Set<string>();
  /** The greatest fencing token of any key. */
  #lastNumber = 0;
  #tokens = 0;
  /** Jobs that came with a lock, by the token of the lock. */
  readonly #arrivals = new Map<string, TakenJob>();

  constructor(redis: Redis, isOn: boolean) {
    this.#redis = redis;
    this.#isOn = isOn;
  }

  newToken(): string {
    this.#tokens += 1;
    return this.#isOn ? this.#tokens.toString(16).padStart(TOKEN_DIGITS, "0") : "";
  }

  /** The lock of a job that never ran remains, and belongs to no running job: see `releaseOthers`. */
  dropUnclaimed(): void {}

  /**
   * Runs `end`, which ends the job, and checks whether the end releases the job's lock. `isLate`: whether the caller
   * has lost the job. `hasSlots`: whether the lane knows the job's slots.
   */
  async releaseWith<Result>(
    {
      id,
      token,
      isLate,
      hasSlots,
    }: {
      readonly id: string;
      readonly token: string | undefined;
      readonly isLate: boolean;
      readonly hasSlots: boolean;
    },
    end: () => Promise<Result>,
  ): Promise<Result> {
    if (token === undefined) return await end();
    const key = this.#keyOf(token);
    const isNamed = hasSlots || key?.includes(SEPARATOR) === false;
    const isExpected = !isLate && key !== undefined && !this.#waited.has(key) && isNamed;
    let isReleased: boolean | undefined;
    const onReply = (was: boolean): void => void (isReleased = was);
    this.#arrivals.get(token)?.leaveLockInstruction({ kind: "release-held", token, onReply });
    // The next job may acquire the lock in the same step.
    if (isExpected) this.#holders.delete(key);
    const [ended] = await Promise.allSettled([end()]);
    if (isReleased !== isExpected) {
      const was = isReleased === true ? "was" : "was not";
      throw new LaneViolation("lock", `the lock of ${id} ${was} released with its end`);
    }
    if (ended.status === "rejected") throw ended.reason;
    return ended.value;
  }

  /** Checks that the job came with the lock of its key if and only if the lock was free. Returns the lock's token. */
  checkGrant({ id, keys, lockPlace, slots }: HandOut, taken: TakenJob | undefined): string | undefined {
    const token = taken?.claimLock() ?? "";
    const granted = token === "" ? undefined : { token, fencingToken: taken?.fencingToken ?? 0 };
    const [slot = 0] = slots;
    const key = `${keys[0] ?? ""}${slot === 0 ? "" : SEPARATOR + slot}`;
    const isFree = !this.#holders.has(key) && !this.#waited.has(key);
    const isExpected = this.#isOn && keys.length === 1 && lockPlace === undefined && isFree;
    if (isExpected !== (granted !== undefined)) {
      throw new LaneViolation("lock", `${id} came with${isExpected ? "out" : ""} the lock of ${keys.join()}`);
    }
    if (granted === undefined) return undefined;
    const last = this.#lastNumber;
    if (granted.fencingToken <= last) {
      throw new LaneViolation("fencing", `${id} came with token ${granted.fencingToken}, not above ${last}`);
    }
    this.#lastNumber = granted.fencingToken;
    this.#holders.set(key, { token: granted.token, id });
    if (taken !== undefined) this.#arrivals.set(granted.token, taken);
    return granted.token;
  }

  /** Plain code acquires a free lock, or waits in line for it. */
  async lockByPlainCode(key: string): Promise<void> {
    if (this.#holders.has(key)) {
      this.#waited.add(key);
      await putInLine(this.#redis, LOCK_PREFIX + key, [WAITER]);
      return;
    }
    this.#lastNumber = Math.max(this.#lastNumber, Date.now() * 1_000) + AHEAD_US;
    this.#holders.set(key, { token: PLAIN, id: undefined });
    await this.#redis.mset({ [LOCK_PREFIX + key]: PLAIN, [NODE_KEYS.lastNumber]: String(this.#lastNumber) });
  }

  /** Removes the waiters, and releases a lock that plain code holds. */
  async unlockByPlainCode(key: string): Promise<void> {
    this.#waited.delete(key);
    await takeFromLine(this.#redis, LOCK_PREFIX + key, [WAITER]);
    if (this.#holders.get(key)?.token === PLAIN) await this.#drop(key);
  }

  /** The lock of a running job expires. */
  async lapse(key: string): Promise<void> {
    for (const [name, { id }] of this.#holders) {
      if (name.split(SEPARATOR)[0] === key && id !== undefined) await this.#drop(name);
    }
  }

  /** Releases the locks that belong to jobs that no longer run. */
  async releaseOthers(isRunning: (id: string, token: string) => boolean): Promise<void> {
    for (const [key, { id, token }] of this.#holders) {
      if (id !== undefined && !isRunning(id, token)) await this.#drop(key);
    }
  }

  /** Compares the tokens in `locks`, by lock name, with the model. */
  check(locks: ReadonlyMap<string, string | null>): void {
    for (const [name, token] of locks) {
      const expected = this.#holders.get(name)?.token ?? null;
      if (token !== expected) {
        throw new LaneViolation("lock", `the lock of ${name} is ${token}, and should be ${expected}`);
      }
    }
  }

  #keyOf(token: string): string | undefined {
    return [...this.#holders].find(([, holder]) => holder.token === token)?.[0];
  }

  async #drop(key: string): Promise<void> {
    this.#holders.delete(key);
    await this.#redis.del(LOCK_PREFIX + key);
  }
}
