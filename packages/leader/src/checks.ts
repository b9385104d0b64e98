/** Pure: the checks that options have in common. */
import type { Redlock } from "@x/redlock-core";

/** Redis Pub/Sub messages and side keys carry it; more belongs into a store of its own. */
export const LONGEST_TEXT = 4_096;

export function text(option: string, given: unknown): string {
  if (typeof given !== "string") throw new TypeError(`${option} must be a string, got ${show(given)}`);
  if (given === "" || given.length > LONGEST_TEXT) {
    throw new RangeError(`${option} must have 1 to ${LONGEST_TEXT} characters, got ${given.length}`);
  }
  return given;
}

export function integer(
  option: string,
  given: unknown,
  least: number,
  most: number = Number.MAX_SAFE_INTEGER,
  whose = "",
): number {
  if (typeof given !== "number") throw new TypeError(`${option} must be a number, got ${show(given)}`);
  if (!Number.isSafeInteger(given) || given < least || given > most) {
    const bounds = most === Number.MAX_SAFE_INTEGER ? `>= ${least}` : `from ${least} to ${most}`;
    throw new RangeError(`${option} must be an integer ${bounds}${whose === "" ? "" : ` (${whose})`}, got ${given}`);
  }
  return given;
}

export function optionalInteger(
  option: string,
  given: unknown,
  least: number,
  most?: number,
  whose?: string,
): number | undefined {
  return given === undefined ? undefined : integer(option, given, least, most, whose);
}

export function optionalFunction<Fn>(option: string, given: Fn | undefined): Fn | undefined {
  if (given !== undefined && typeof given !== "function")
    throw new TypeError(`${option} must be a function, got ${show(given)}`);
  return given;
}

export function oneOf<Choice extends string>(
  option: string,
  given: unknown,
  choices: readonly Choice[],
  fallback: Choice,
): Choice {
  if (given === undefined) return fallback;
  const choice = choices.find((candidate) => candidate === given);
  if (choice !== undefined) return choice;
  const rule = `${option} must be one of ${choices.map((each) => `"${each}"`).join(", ")}, got ${show(given)}`;
  throw typeof given === "string" ? new RangeError(rule) : new TypeError(rule);
}

export function optionalBoolean(option: string, given: unknown): boolean | undefined {
  if (given !== undefined && typeof given !== "boolean")
    throw new TypeError(`${option} must be a boolean, got ${show(given)}`);
  return given;
}

export function share(option: string, given: unknown): number {
  if (typeof given !== "number") throw new TypeError(`${option} must be a number, got ${show(given)}`);
  if (!(given >= 0 && given <= 1)) throw new RangeError(`${option} must be from 0 to 1, got ${given}`);
  return given;
}

export function abortSignal(given: unknown): AbortSignal | undefined {
  if (given !== undefined && !(given instanceof AbortSignal))
    throw new TypeError(`signal must be an AbortSignal, got ${show(given)}`);
  return given;
}

/** By what is used of it: there may be two copies of redlock-core in one program. */
export function isRedlock(given: unknown): given is Redlock {
  const redlock = given as Partial<Redlock> | null | undefined;
  return typeof redlock?.options?.maxTtl === "number" && typeof redlock.acquire === "function";
}

export function show(given: unknown): string {
  if (typeof given === "string") return JSON.stringify(given);
  if (typeof given === "function") return "a function";
  if (Array.isArray(given)) return "an array";
  return typeof given === "object" && given !== null && !("getTime" in given) ? "an object" : String(given);
}
