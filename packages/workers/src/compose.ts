/** Pure: puts our Lua and BullMQ's own script texts together into one script per command. */
import { createHash } from "node:crypto";
import { MAX_KEY_BYTES, MAX_KEYS } from "./entity-key.ts";
import * as commands from "./scripts/commands.lua.ts";
import { laneLibrary } from "./scripts/lane.lua.ts";
import * as operators from "./scripts/operators.lua.ts";

export type OnFailure = "skip" | "block" | "halt";

/** What is written into the scripts; two workers of a queue should agree on it. */
export interface LaneRules {
  /** Fields of the path to the key, or undefined if keys come from a function. */
  readonly path: readonly string[] | undefined;
  readonly onFailure: OnFailure;
  /** When the first in line is judged again though nobody handed the key over; the n-th n times as late, at most `farMs`. */
  readonly nearMs: number;
  readonly farMs: number;
}

/** What the scripts need to take and release a key's lock by themselves, when it is on the queue's own Redis. */
export interface LockRules {
  /** Of `@x/redlock-core`. */
  readonly lua: string;
  /** Stands before the key in the name of its lock. */
  readonly prefix: string;
  /** No lock has a name that begins so. */
  readonly reserved: string;
  readonly ttlMs: number;
  readonly fenceTtlMs: number;
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
export type OperatorCommand = keyof typeof operators;

export interface BullScript {
  readonly lua: string;
  readonly numberOfKeys: number;
}
export type BullScripts = Readonly<Record<EmbeddedScript, BullScript>>;

export interface ComposedScript extends BullScript {
  /** Unique to the text, so that workers with different rules can share a client. */
  readonly name: string;
}
export interface LaneScripts {
  readonly commands: Readonly<Record<DecoratedCommand, ComposedScript>>;
  readonly operators: Readonly<Record<OperatorCommand, ComposedScript>>;
}

export function composeScripts(bull: BullScripts, rules: LaneRules, locks?: LockRules): LaneScripts {
  const head = [
    "local call = redis.call",
    `local PATH = ${rules.path === undefined ? "nil" : `{${rules.path.map(luaString).join(", ")}}`}`,
    `local SKIP, HALT = ${rules.onFailure === "skip"}, ${rules.onFailure === "halt"}`,
    `local NEAR, FAR, MAX_KEY, MAX_KEYS = ${rules.nearMs}, ${rules.farMs}, ${MAX_KEY_BYTES}, ${MAX_KEYS}`,
    locks === undefined
      ? "local lockIfFree, unlockIfUnwanted, LOCK_PREFIX, RESERVED, LOCK_TTL, FENCE_TTL"
      : `local LOCK_PREFIX, RESERVED = ${luaString(locks.prefix)}, ${luaString(locks.reserved)}
local LOCK_TTL, FENCE_TTL = ${locks.ttlMs}, ${locks.fenceTtlMs}
${locks.lua}`,
    asFunction("bullPromote", bull.promote.lua),
    asFunction("bullMoveToActive", bull.moveToActive.lua),
    laneLibrary,
  ].join("\n");
  const compose = (name: string, numberOfKeys: number, ...parts: readonly string[]): ComposedScript => {
    const lua = [head, ...parts].join("\n");
    return { name: `lane:${name}:${createHash("sha1").update(lua).digest("hex").slice(0, 12)}`, lua, numberOfKeys };
  };
  const decorate = (name: DecoratedCommand): ComposedScript => {
    const own =
      name === "moveToActive" ? [] : [asFunction(`bull${name[0]?.toUpperCase()}${name.slice(1)}`, bull[name].lua)];
    return compose(name, bull[name].numberOfKeys, ...own, commands[name]);
  };
  const operate = (name: OperatorCommand): ComposedScript => compose(name, 1, operators[name]);
  return {
    commands: {
      moveToActive: decorate("moveToActive"),
      moveToFinished: decorate("moveToFinished"),
      moveToDelayed: decorate("moveToDelayed"),
      moveToWaitingChildren: decorate("moveToWaitingChildren"),
      retryJob: decorate("retryJob"),
    },
    operators: {
      pin: operate("pin"),
      wake: operate("wake"),
      pause: operate("pause"),
      resume: operate("resume"),
      list: operate("list"),
      explain: operate("explain"),
      lengths: operate("lengths"),
      mark: operate("mark"),
      inLine: operate("inLine"),
    },
  };
}

/** KEYS and ARGV become the function's parameters, so the text runs as it is. */
function asFunction(name: string, lua: string): string {
  return `local function ${name}(KEYS, ARGV)\n${lua}\nend`;
}

/** A Lua string literal of any text: every byte that is not a letter or digit is escaped. */
export function luaString(text: string): string {
  const bytes = [...Buffer.from(text)];
  const escaped = bytes.map((byte) => {
    const char = String.fromCharCode(byte);
    return /[A-Za-z0-9_]/.test(char) ? char : `\\${String(byte).padStart(3, "0")}`;
  });
  return `"${escaped.join("")}"`;
}
