/**
 * Pure: the value of a lock's key.
 *
 * Every Redlock implementation compares whole values, so ours may begin with a mark. It tells our locks from those of other libraries,
 * which tell nobody of their release: random hex digits alone are what others write, too.
 */
import type { Random } from "./random.ts";

const MARK = "x";

/** With `random.token()` of 40 characters. A `Random` of the caller's own may return others. */
export const TOKEN_LENGTH = 41;

/** Lua: whether `value` is one of ours. */
export const IS_OURS: string = `#value == ${TOKEN_LENGTH} and string.byte(value) == ${MARK.charCodeAt(0)}`;

export function newToken(random: Random): string {
  return MARK + random.token();
}
