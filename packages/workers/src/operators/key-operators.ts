/** What operators ask about the keys of a queue, and do to them, through the lane. */
import type { Clock } from "@x/redlock-core";
import { DAY_MS, integer, Schema, text } from "@x/redlock-core/protocol";
import { KEY } from "../entity-key.ts";
import type { Tell } from "../events.ts";
import type { Lane } from "../lane/lane.ts";
import {
  type BusyKey,
  type Explanation,
  type KeyJobs,
  type KeyList,
  parseExplanation,
  parseKeyJobs,
  parseKeys,
} from "./operators.ts";
import type { KeyGauges } from "./prometheus.ts";

const LIST_PAGE = 500;
const JOB_ID = text({ min: 1 });
const LONGEST_REASON = 10_000;
const REASON = text({ max: LONGEST_REASON });
const LIST = new Schema({ limit: integer({ min: 1, unit: "" }).default(1_000) });
const PAUSE = new Schema({ for: integer({ min: 1, max: 366 * DAY_MS }).optional() });

/** At most so many are listed. */
interface ListOptions {
  readonly limit?: number | undefined;
}

/** Each method is described where users find it, at that of `ExclusiveWorker`. */
export class KeyOperators {
  readonly #queue: string;
  readonly #lane: Pick<Lane, "operate" | "stateOf">;
  readonly #clock: Clock;
  readonly #tell: Tell;

  constructor(parts: {
    readonly queue: string;
    readonly lane: Pick<Lane, "operate" | "stateOf">;
    readonly clock: Clock;
    readonly tell: Tell;
  }) {
    this.#queue = parts.queue;
    this.#lane = parts.lane;
    this.#clock = parts.clock;
    this.#tell = parts.tell;
  }

  async list(options: ListOptions): Promise<BusyKey[]> {
    const { limit } = LIST.resolve(options);
    const found = new Map<string, BusyKey>();
    for await (const page of this.#pages()) {
      for (const key of page) found.set(key.key, key);
      if (found.size >= limit) break;
    }
    return [...found.values()].slice(0, limit);
  }

  async jobsOf(key: string, options: ListOptions): Promise<KeyJobs> {
    KEY.of("key", key);
    const { limit } = LIST.resolve(options);
    return parseKeyJobs(await this.#lane.operate("inLine", key, limit));
  }

  async explain(jobId: string): Promise<Explanation | undefined> {
    JOB_ID.of("jobId", jobId);
    const [raw, state] = await Promise.all([this.#lane.operate("explain", jobId), this.#lane.stateOf(jobId)]);
    return parseExplanation(jobId, state, raw);
  }

  async pause(key: string, reason: string, options: { readonly for?: number | undefined }): Promise<boolean> {
    KEY.of("key", key);
    REASON.of("reason", reason);
    const { for: ms = "" } = PAUSE.resolve(options);
    const [isNew, until] = (await this.#lane.operate("pause", key, reason, ms)) as readonly [number, string];
    const end = until === "" ? {} : { until: Number(until) };
    this.#tell("keyPaused", () => ({ queue: this.#queue, key, reason, ...end }));
    return isNew === 1;
  }

  async resume(key: string): Promise<boolean> {
    KEY.of("key", key);
    const wasPaused = (await this.#lane.operate("resume", key)) === 1;
    this.#tell("keyResumed", () => ({ queue: this.#queue, key }));
    return wasPaused;
  }

  /** Asks for every key, so that one that nobody asks for is passed on, or forgotten. */
  async askForAll(): Promise<void> {
    for await (const page of this.#pages()) void page;
  }

  async gauges(): Promise<KeyGauges> {
    let [parked, busyKeys, pausedKeys, longestLine] = [0, 0, 0, 0];
    const now = this.#clock.wallMs();
    let oldest = now;
    const counted = new Set<string>();
    for await (const page of this.#pages()) {
      for (const key of page) {
        if (counted.has(key.key)) continue;
        counted.add(key.key);
        parked += key.parked;
        longestLine = Math.max(longestLine, key.parked);
        if (key.holder !== undefined) busyKeys += 1;
        if (key.paused !== undefined) pausedKeys += 1;
        oldest = Math.min(oldest, key.since ?? now);
      }
    }
    const [runnable, active] = await this.#laneLengths();
    const counts = { runnable, active, parked, busyKeys, pausedKeys };
    return { counts, longestLine, longestHeldMs: now - oldest };
  }

  /** Asks for all keys, page by page. Some come twice if there are fewer and fewer meanwhile. */
  async *#pages(): AsyncGenerator<readonly BusyKey[]> {
    let cursor = "0";
    do {
      const list: KeyList = parseKeys(await this.#lane.operate("list", cursor, LIST_PAGE));
      yield list.keys;
      cursor = list.cursor;
    } while (cursor !== "0");
  }

  async #laneLengths(): Promise<[number, number]> {
    const lengths = (await this.#lane.operate("lengths")) as readonly number[];
    return [lengths[0] ?? 0, lengths[1] ?? 0];
  }
}
