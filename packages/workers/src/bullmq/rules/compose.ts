/** Pure: puts our Lua and BullMQ's own script texts together into one script per command. */
import { createHash } from "node:crypto";
import type { DroppedAs } from "../../rules/entity-key.ts";
import * as commands from "../../scripts/commands.lua.ts";
import { keyLock, type LockRules, noKeyLock } from "../../scripts/key-lock.lua.ts";
import { laneLibrary } from "../../scripts/lane.lua.ts";
import { operate } from "../../scripts/operate.lua.ts";
import { noRing, ring, turns } from "../../scripts/rotation.lua.ts";
import { asFunction, asRepeatedFunction, luaString } from "../../scripts/rules/lua.ts";
import { pinLibrary } from "../../scripts/rules/pin.lua.ts";
import { QUEUE_KEY_COUNT } from "./queue-keys.ts";

export type OnFailure = "skip" | "block" | "halt";

/** At most `max` jobs of a key start in any `duration` ms. */
export interface KeyRate {
  /** The most starts of a key in any `duration`, from 1 to 10000. */
  readonly max: number;
  /** The span that is looked at, in ms; from 1 to a day. */
  readonly duration: number;
}

/** How many jobs may stand in line for a key, and which one does not run otherwise, and as what. */
export interface LineRules {
  readonly max: number;
  readonly drop: "newest" | "oldest";
  readonly as: DroppedAs;
  /** Whether a job that comes supersedes the one that has its key, too. */
  readonly interrupts?: boolean | undefined;
}

/** What is written into the scripts; two workers of a queue should agree on it. */
export interface LaneRules {
  /** Fields of the path to the key, or undefined if keys come from a function. */
  readonly path: readonly string[] | undefined;
  readonly onFailure: OnFailure;
  readonly rate?: KeyRate | undefined;
  readonly line?: LineRules | undefined;
  /** How many jobs of a key may run at a time. Default: 1. */
  readonly slots?: number | undefined;
  /** Whether keys take turns, and how many starts the turn of a key has where it is more than one. */
  readonly rotate?: { readonly weights: Readonly<Record<string, number>> } | undefined;
  /** The jobs that wait for a key are given to one call: at most `size`, after `wait` ms. */
  readonly merge?: { readonly size: number; readonly wait: number } | undefined;
  /**
   * When the first in line is judged again though nobody handed the key over; the n-th n times as late, at most
   * `farMs`.
   */
  readonly nearMs: number;
  readonly farMs: number;
}

/** BullMQ's commands that take or leave a job. */
export const decorated = [
  "moveToActive",
  "moveToFinished",
  "moveToDelayed",
  "moveToWaitingChildren",
  "retryJob",
] as const;
export type DecoratedCommand = (typeof decorated)[number];
/** BullMQ's scripts whose text is used. */
export type EmbeddedScript = DecoratedCommand | "promote";
export const embedded: readonly EmbeddedScript[] = [...decorated, "promote"];

export interface BullScript {
  readonly lua: string;
  readonly numberOfKeys: number;
}
export type BullScripts = Readonly<Record<EmbeddedScript, BullScript>>;

export interface ComposedScript extends BullScript {
  /** The name is unique to the text, so that workers with different rules can share a client. */
  readonly name: string;
}
export interface LaneScripts {
  readonly commands: Readonly<Record<DecoratedCommand, ComposedScript>>;
  /** The one script of what operators, and the worker between jobs, ask of the lane. */
  readonly operate: ComposedScript;
}

/**
 * Tells whether several jobs of a key may run at a time. Where one waits for its retry, or gives way to a newer one, or
 * is given those that wait, the key is its alone.
 */
export function mayShare({ onFailure, line, merge }: Pick<LaneRules, "onFailure" | "line" | "merge">): boolean {
  return onFailure === "skip" && line?.interrupts !== true && merge === undefined;
}

export function composeScripts(bull: BullScripts, rules: LaneRules, locks?: LockRules): LaneScripts {
  const head = [
    "local call, try = redis.call, redis.pcall",
    commands.unpackable,
    `local SKIP, HALT = ${rules.onFailure === "skip"}, ${rules.onFailure === "halt"}`,
    `local LATEST = ${rules.line?.as === "superseded"}`,
    `local RATE, SLOTS, ROTATE = ${rules.rate !== undefined}, ${rules.slots ?? 1}, ${rules.rotate !== undefined}`,
    pinLibrary(rules.path),
    locks === undefined ? noKeyLock : keyLock(locks),
  ];
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
  const { rotate } = rules;
  const weight = rotate === undefined ? [] : [weightsTable(rotate.weights)];
  const rotation = rotate === undefined ? { ring: noRing, turns: "" } : { ring, turns };
  const slowly = [numbers, drops, may, ...weight, asFunction("bullPromote", bull.promote.lua)];
  const library = laneLibrary([...slowly, takes].join("\n"), rotation);
  const compose = (name: string, numberOfKeys: number, parts: readonly string[]): ComposedScript => {
    const lua = [...head, ...parts].join("\n");
    return { name: `lane:${name}:${createHash("sha1").update(lua).digest("hex").slice(0, 12)}`, lua, numberOfKeys };
  };
  const decorate = (name: Exclude<DecoratedCommand, "moveToFinished">): ComposedScript => {
    const own = asFunction(`bull${name[0]?.toUpperCase()}${name.slice(1)}`, bull[name].lua);
    const parts = name === "moveToActive" ? [own, laneLibrary(slowly.join("\n"), rotation)] : [library, own];
    return compose(name, bull[name].numberOfKeys, [...parts, commands[name]]);
  };
  /** Composes the script that ends many jobs at once. */
  const end = (): ComposedScript => {
    const own = asRepeatedFunction(
      "bullMoveToFinished",
      bull.moveToFinished.lua,
      commands.oncePerRequest(bull.moveToFinished.lua),
    );
    const finish = asFunction("finish", commands.moveToFinished({ supersedes: line?.as === "superseded" }));
    const parts = [library, own, finish, asFunction("endAll", commands.eachEnd), commands.endCalmly];
    return compose("moveToFinished", QUEUE_KEY_COUNT, parts);
  };
  let composed: ComposedScript | undefined;
  return {
    commands: lazily(decorated, (name) => (name === "moveToFinished" ? end() : decorate(name))),
    get operate(): ComposedScript {
      return (composed ??= compose("operate", 2, [library, operate]));
    },
  };
}

/** Makes each value when it is first read. A worker needs few of the scripts, each of them 70 kB of text. */
function lazily<Name extends string, Value>(
  names: readonly Name[],
  make: (name: Name) => Value,
): Readonly<Record<Name, Value>> {
  const values: Partial<Record<Name, Value>> = {};
  const entries = names.map((name) => [name, { enumerable: true, get: () => (values[name] ??= make(name)) }]);
  return Object.defineProperties({}, Object.fromEntries(entries) as PropertyDescriptorMap) as Record<Name, Value>;
}

/** Writes down how many starts the turn of a key has, where it is more than one. */
function weightsTable(weights: Readonly<Record<string, number>>): string {
  const entries = Object.entries(weights).map(([key, weight]) => `[${luaString(key)}] = ${weight}`);
  return `local WEIGHTS = {${entries.join(", ")}}`;
}
