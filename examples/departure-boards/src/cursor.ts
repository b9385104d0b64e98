/**
 * How far the log has been enqueued, in Redis. Only the leader of the latest term moves it: claiming it with a term makes every
 * earlier term's moves fail, so a deposed leader that does not know it yet does no harm.
 */
import type { Redis } from "ioredis";
import { type Leadership, parseLeadership } from "./history.ts";

// KEYS: 1 cursor (hash: term, leader, next), 2 leaderships (list). ARGV: 1 term, 2 leader.
// Returns the next flight to enqueue, or false if a later term has claimed the cursor.
const claimScript = `
local term = tonumber(redis.call("HGET", KEYS[1], "term") or "0")
if tonumber(ARGV[1]) < term then return false end
if tonumber(ARGV[1]) > term then
  local time = redis.call("TIME")
  local ms = time[1] .. string.format("%03d", math.floor(tonumber(time[2]) / 1000))
  redis.call("HSET", KEYS[1], "term", ARGV[1], "leader", ARGV[2])
  redis.call("RPUSH", KEYS[2], table.concat({ ARGV[1], ARGV[2], ms }, " "))
end
return redis.call("HGET", KEYS[1], "next") or "0"
`;

// KEYS: 1 cursor. ARGV: 1 term, 2 next flight. Returns 1, or 0 if a later term has claimed the cursor.
const moveScript = `
if tonumber(ARGV[1]) < tonumber(redis.call("HGET", KEYS[1], "term") or "0") then
  redis.call("HINCRBY", KEYS[1], "refused", 1)
  return 0
end
redis.call("HSET", KEYS[1], "next", ARGV[2])
return 1
`;

/** A later leader owns the cursor. */
export class DeposedError extends Error {
  override readonly name = "DeposedError";
}

export interface CursorState {
  /** 0 before the first leader. */
  readonly term: number;
  readonly leader: string | undefined;
  /** The next flight to enqueue. */
  readonly next: number;
  /** Moves of deposed leaders. */
  readonly refused: number;
}

export class Cursor {
  readonly #redis: Redis;
  readonly #key: string;

  constructor(redis: Redis, prefix: string) {
    this.#redis = redis;
    this.#key = `${prefix}cursor`;
  }

  /**
   * Takes the cursor for a term; returns the next flight to enqueue.
   * @throws DeposedError
   */
  async claim(term: number, leader: string): Promise<number> {
    const reply = await this.#redis.eval(claimScript, 2, this.#key, `${this.#key}:leaderships`, term, leader);
    if (typeof reply !== "string") throw new DeposedError(`term ${term} of ${leader} is over`);
    return Number(reply);
  }

  /** @throws DeposedError */
  async move(term: number, next: number): Promise<void> {
    const reply = await this.#redis.eval(moveScript, 1, this.#key, term, next);
    if (reply !== 1) throw new DeposedError(`term ${term} is over`);
  }

  async state(): Promise<CursorState> {
    const { term = "0", leader, next = "0", refused = "0" } = await this.#redis.hgetall(this.#key);
    return { term: Number(term), leader, next: Number(next), refused: Number(refused) };
  }

  async leaderships(): Promise<Leadership[]> {
    const texts = await this.#redis.lrange(`${this.#key}:leaderships`, 0, -1);
    return texts.map(parseLeadership);
  }
}
