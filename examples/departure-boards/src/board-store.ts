/**
 * The airports' boards in Redis. A read registers the reader's fencing token, and a write with an older one than the board
 * has seen is refused: a worker that was paused past its lease cannot overwrite what its successor wrote, or will write.
 */
import type { Redis } from "ioredis";
import { type Board, emptyBoard } from "./board.ts";
import type { Flight } from "./flight.ts";
import { type EventKind, type HistoryEvent, parseEvent } from "./history.ts";

// KEYS: 1 board (hash: token, board), 2 flights on the board (set), 3 history (list).
// ARGV: 1 fencing token, "" without locks; 2 run; 3 flight; 4 origin; 5 worker; 6 the board to write.
const record = `
local token = ARGV[1]
local function record(kind)
  local time = redis.call("TIME")
  local ms = time[1] .. string.format("%03d", math.floor(tonumber(time[2]) / 1000))
  redis.call("RPUSH", KEYS[3], table.concat({ kind, ARGV[2], ARGV[3], ARGV[4], token == "" and "0" or token, ARGV[5], ms }, " "))
  return kind
end
local function isStale()
  return token ~= "" and tonumber(token) < tonumber(redis.call("HGET", KEYS[1], "token") or "0")
end
`;

// Returns the board, "" if there is none yet, or false if the token is stale.
const beginScript = `${record}
if isStale() then
  record("stale")
  return false
end
if token ~= "" then redis.call("HSET", KEYS[1], "token", token) end
record("begin")
return redis.call("HGET", KEYS[1], "board") or ""
`;

// Returns what happened: "written", "stale" or "repeated".
const writeScript = `${record}
if isStale() then return record("stale") end
if token ~= "" and redis.call("SADD", KEYS[2], ARGV[3]) == 0 then return record("repeated") end
redis.call("HSET", KEYS[1], "board", ARGV[6])
return record("written")
`;

/** A run's right to write: who it is, and the lock's fencing token; without locks there is none, and nothing is refused. */
export interface Run {
  readonly id: string;
  readonly worker: string;
  readonly fencingToken: number | undefined;
}

/** A read or write came with an older fencing token than the board has seen. */
export class StaleTokenError extends Error {
  override readonly name = "StaleTokenError";
}

export class BoardStore {
  readonly #redis: Redis;
  readonly #prefix: string;

  /** All keys start with `prefix`. */
  constructor(redis: Redis, prefix: string) {
    this.#redis = redis;
    this.#prefix = prefix;
  }

  /**
   * The board on which `flight` is to appear.
   * @throws StaleTokenError
   */
  async begin(flight: Flight, run: Run): Promise<Board> {
    const reply = await this.#eval(beginScript, flight, run);
    if (typeof reply !== "string")
      throw new StaleTokenError(`a newer run than ${run.id} has read the board of ${flight.origin}`);
    return reply === "" ? emptyBoard : toBoard(reply);
  }

  /**
   * Stores the board with `flight` on it. A board that has the flight already stays as it is.
   * @throws StaleTokenError
   */
  async write(flight: Flight, run: Run, board: Board): Promise<EventKind> {
    const reply = await this.#eval(writeScript, flight, run, JSON.stringify(board));
    if (reply === "stale")
      throw new StaleTokenError(`a newer run than ${run.id} has read the board of ${flight.origin}`);
    if (reply !== "written" && reply !== "repeated") throw new Error(`unexpected reply of the store: ${String(reply)}`);
    return reply;
  }

  async boards(airports: Iterable<string>): Promise<Map<string, Board>> {
    const boards = new Map<string, Board>();
    for (const airport of airports) {
      const text = await this.#redis.hget(this.#boardKey(airport), "board");
      if (text !== null) boards.set(airport, toBoard(text));
    }
    return boards;
  }

  /** The events from the `from`th on. */
  async history(from: number): Promise<HistoryEvent[]> {
    const events = await this.#redis.lrange(this.#historyKey, from, -1);
    return events.map(parseEvent);
  }

  get #historyKey(): string {
    return `${this.#prefix}history`;
  }

  #boardKey(airport: string): string {
    return `${this.#prefix}board:${airport}`;
  }

  async #eval(script: string, flight: Flight, run: Run, board = ""): Promise<unknown> {
    const keys = [this.#boardKey(flight.origin), `${this.#prefix}on-board:${flight.origin}`, this.#historyKey];
    const token = run.fencingToken === undefined ? "" : `${run.fencingToken}`;
    return await this.#redis.eval(
      script,
      keys.length,
      ...keys,
      token,
      run.id,
      flight.index,
      flight.origin,
      run.worker,
      board,
    );
  }
}

function toBoard(text: string): Board {
  return JSON.parse(text) as Board;
}
