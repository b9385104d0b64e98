/** Pure: combines our Lua with the texts of BullMQ's own scripts into one script for each command. */
import { createHash } from "node:crypto";
import type { DropReason } from "../../rules/entity-key.ts";
import * as commands from "../../scripts/commands.lua.ts";
import { keyLock, type LockRules, noKeyLock } from "../../scripts/key-lock.lua.ts";
import { laneLibrary } from "../../scripts/lane.lua.ts";
import { operate } from "../../scripts/operate.lua.ts";
import { noRing, ring, turns } from "../../scripts/rotation.lua.ts";
import { asFunction, asRepeatedFunction, luaString } from "../../scripts/rules/lua.ts";
import { pinLibrary } from "../../scripts/rules/pin.lua.ts";
import { QUEUE_KEY_COUNT } from "./queue-keys.ts";

export type OnFailure = "skip" | "block" | "halt";

/** A rate limit for each key: at most `max` of its jobs start within any `duration` ms. */
export interface KeyRate {
  /** Maximum number of starts of a key within any `duration`, from 1 to 10000. */
  readonly max: number;
  /** Length of the sliding window, in ms, from 1 to a day. */
  readonly duration: number;
}

/** The limit of a key's line: how many jobs may wait, which job is dropped from a full line, and with which reason. */
export interface LineRules {
  readonly max: number;
  readonly drop: "newest" | "oldest";
  readonly as: DropReason;
  /** Whether a new job also supersedes the job that has the key. */
  readonly interrupts?: boolean | undefined;
}

/** The options that are written into the scripts. All workers of a queue should use the same ones. */
export interface LaneRules {
  /** The fields of the path to the key. Undefined if a function computes the keys. */
  readonly path: readonly string[] | undefined;
  readonly onFailure: OnFailure;
  readonly rate?: KeyRate | undefined;
  readonly line?: LineRules | undefined;
  /** How many jobs of a key may run at the same time. Default: 1. */
  readonly slots?: number | undefined;
  /** Set if keys take turns. `weights` contains the number of starts in a key's turn, for keys with more than one. */
  readonly rotate?: { readonly weights: Readonly<Record<string, number>> } | undefined;
  /** Set if one call handles all jobs that wait for a key: at most `size` jobs, after `wait` ms. */
  readonly merge?: { readonly size: number; readonly wait: number } | undefined;
  /**
   * When the first job in line is judged again even if no job has handed the key over. The n-th job in line is judged
   * after n times `nearMs`, and after at most `farMs`.
   */
  readonly nearMs: number;
  readonly farMs: number;
}

/** No key has more jobs while a queue is watched. */
const MOST_WATCHED = 1_000_000;
/** Number of jobs of a watched key that a script checks, in addition to the number of slots. */
const MOST_CHECKED = 20;
/** Number of keys whose early starts are counted while a queue is watched. */
const MOST_COUNTED = 100;

/** BullMQ's commands that fetch a job, end it or move it. */
export const decorated = [
  "moveToActive",
  "moveToFinished",
  "moveToDelayed",
  "moveToWaitingChildren",
  "retryJob",
] as const;
export type DecoratedCommand = (typeof decorated)[number];
/** BullMQ's scripts whose texts are embedded in ours. */
export type EmbeddedScript = DecoratedCommand | "promote";
export const embedded: readonly EmbeddedScript[] = [...decorated, "promote"];

export interface BullScript {
  readonly lua: string;
  readonly numberOfKeys: number;
}
export type BullScripts = Readonly<Record<EmbeddedScript, BullScript>>;

export interface ComposedScript extends BullScript {
  /** Name that is unique to the text, so that workers with different options can share a client. */
  readonly name: string;
}
export interface LaneScripts {
  readonly commands: Readonly<Record<DecoratedCommand, ComposedScript>>;
  /** The script with all the commands that operators send to the lane, and that the worker sends between jobs. */
  readonly operate: ComposedScript;
  /** The same script with the end of a job, for the operators' command `cancel`. */
  readonly cancel: ComposedScript;
}

/**
 * Reports whether several jobs of a key may run at the same time. A job must have its key alone if it keeps the key
 * until its retry, or if a newer job can interrupt it. The same applies if one call handles all jobs in line.
 */
export function mayShare({ onFailure, line, merge }: Pick<LaneRules, "onFailure" | "line" | "merge">): boolean {
  return onFailure === "skip" && line?.interrupts !== true && merge === undefined;
}

/** Reports whether BullMQ moves the waiting jobs of a paused queue to a list of their own. */
function movesPaused({ promote }: BullScripts): boolean {
  return promote.lua.includes("getTargetQueueList(");
}

/** Reports whether BullMQ's limiter counts the start of a job that BullMQ has failed because it stalled too often. */
function countsFailed({ moveToActive }: BullScripts): boolean {
  return !moveToActive.lua.includes("isDeferredFailure");
}

export function composeScripts(bull: BullScripts, rules: LaneRules, locks?: LockRules): LaneScripts {
  const head = [
    "local call, try = redis.call, redis.pcall",
    commands.unpackable,
    `local SKIP, HALT = ${rules.onFailure === "skip"}, ${rules.onFailure === "halt"}`,
    `local LATEST = ${rules.line?.as === "superseded"}`,
    `local RATE, SLOTS, TURNS = ${rules.rate !== undefined}, ${rules.slots ?? 1}, ${rules.rotate !== undefined}`,
    `local MAY_WATCH, ROTATE = ${rules.merge === undefined}, TURNS`,
    pinLibrary(rules.path),
  ];
  const keyLocks = locks === undefined ? noKeyLock : keyLock(locks);
  const takes = asFunction("bullMoveToActive", bull.moveToActive.lua);
  const { nearMs, farMs, rate = { max: 0, duration: 0 } } = rules;
  const numbers = `local NEAR, FAR, RATE_MAX, RATE_MS = ${nearMs}, ${farMs}, ${rate.max}, ${rate.duration}`;
  const { line } = rules;
  const drops =
    line === undefined
      ? "local LINE_MAX, DROPS_OLDEST, DROPPED, INTERRUPTS"
      : `local LINE_MAX, DROPS_OLDEST, DROPPED, INTERRUPTS = ${line.max}, ${line.drop === "oldest"}, '${line.as}', ${line.interrupts === true}`;
  const shares = mayShare(rules);
  const limits = line === undefined || line.as === "backlog";
  const may = `local MAY_SHARE, MAY_LIMIT, MAY_DROP_OLDEST = ${shares}, ${limits}, ${rules.merge === undefined}`;
  const facts = `local MOVES_PAUSED, COUNTS_FAILED = ${movesPaused(bull)}, ${countsFailed(bull)}`;
  const watching = `local MOST_WATCHED, MOST_CHECKED, MOST_COUNTED = ${MOST_WATCHED}, ${MOST_CHECKED}, ${MOST_COUNTED}`;
  const { rotate } = rules;
  const weight = rotate === undefined ? [] : [weightsTable(rotate.weights)];
  const rotation = rotate === undefined ? { ring: noRing, turns: "" } : { ring, turns };
  const slowly = [numbers, drops, may, facts, watching, ...weight, asFunction("bullPromote", bull.promote.lua)];
  const library = laneLibrary([...slowly, takes].join("\n"), rotation);
  const compose = (
    name: string,
    numberOfKeys: number,
    parts: readonly string[],
    lockText = keyLocks,
  ): ComposedScript => {
    const lua = [...head, lockText, ...parts].join("\n");
    return { name: `lane:${name}:${createHash("sha1").update(lua).digest("hex").slice(0, 12)}`, lua, numberOfKeys };
  };
  const decorate = (name: Exclude<DecoratedCommand, "moveToFinished">): ComposedScript => {
    const own = asFunction(`bull${name[0]?.toUpperCase()}${name.slice(1)}`, bull[name].lua);
    const parts = name === "moveToActive" ? [own, laneLibrary(slowly.join("\n"), rotation)] : [library, own];
    return compose(name, bull[name].numberOfKeys, [...parts, commands[name]]);
  };
  /** Returns the function `finish`, which ends one job, and the text of BullMQ that it calls. */
  const finish = (): readonly string[] => [
    asRepeatedFunction("bullMoveToFinished", bull.moveToFinished.lua, commands.oncePerRequest(bull.moveToFinished.lua)),
    asFunction("finish", commands.moveToFinished({ supersedes: line?.as === "superseded" })),
  ];
  /** Composes the script that ends many jobs in one request. */
  const end = (): ComposedScript => {
    const parts = [library, ...finish(), asFunction("endAll", commands.eachEnd), commands.endCalmly];
    return compose("moveToFinished", QUEUE_KEY_COUNT, parts);
  };
  let [composed, cancel]: (ComposedScript | undefined)[] = [];
  return {
    commands: lazily(decorated, (name) => (name === "moveToFinished" ? end() : decorate(name))),
    get operate(): ComposedScript {
      // Operators acquire no locks, so workers and queues with the same rules share one script.
      return (composed ??= compose("operate", 3, [library, operate], noKeyLock));
    },
    get cancel(): ComposedScript {
      return (cancel ??= compose("cancel", 3, [library, ...finish(), operate], noKeyLock));
    },
  };
}

/** Creates each value when it is first read. A worker needs only a few of the scripts, and each has 70 kB of text. */
function lazily<Name extends string, Value>(
  names: readonly Name[],
  make: (name: Name) => Value,
): Readonly<Record<Name, Value>> {
  const values: Partial<Record<Name, Value>> = {};
  const entries = names.map((name) => [name, { enumerable: true, get: () => (values[name] ??= make(name)) }]);
  return Object.defineProperties({}, Object.fromEntries(entries) as PropertyDescriptorMap) as Record<Name, Value>;
}

/** Returns the Lua table with the number of starts in a key's turn, for keys with more than one. */
function weightsTable(weights: Readonly<Record<string, number>>): string {
  const entries = Object.entries(weights).map(([key, weight]) => `[${luaString(key)}] = ${weight}`);
  return `local WEIGHTS = {${entries.join(", ")}}`;
}
