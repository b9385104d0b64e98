/**
 * Pure: the value of a lock's key.
 *
 * Every Redlock implementation compares whole values, so ours may begin with a mark. It tells our locks from those of
 * other libraries, which tell nobody of their release. Random hex digits alone would not, because others write them,
 * too.
 */
import type { Random } from "../kit/random.ts";

const MARK = "x";

/** The length of a token, if `random.token()` has 40 characters. A `Random` of the caller's own may return others. */
export const TOKEN_LENGTH = 41;

/** A Lua expression that tells whether `value` is one of ours. */
export const IS_OURS: string = `#value == ${TOKEN_LENGTH} and string.byte(value) == ${MARK.charCodeAt(0)}`;

export function newToken(random: Random): string {
  return MARK + random.token();
}
