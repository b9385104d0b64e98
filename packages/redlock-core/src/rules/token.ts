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

/** The number of a token's digits that may name its client. The 28 others are random: 112 bits. */
export const CLIENT_DIGITS = 12;

/** The first digit of every client. It is no hex digit, so a token tells whether it has a client. */
const NAMED = "n";

/** A Lua expression that tells whether a `value` of ours begins with the digits of a client. */
export const HAS_CLIENT: string = `string.byte(value, 2) == ${NAMED.charCodeAt(0)}`;

/** A Lua expression for the digits in a `value` that begins with those of a client. */
export const CLIENT_IN_LUA: string = `string.sub(value, 2, ${MARK.length + CLIENT_DIGITS})`;

/** Returns the digits that all tokens of one client with a name begin with. */
export function newClient(random: Random): string {
  return NAMED + random.token().slice(0, CLIENT_DIGITS - NAMED.length);
}

/** `client`: the digits that all tokens of one client begin with, if it has a name. */
export function newToken(random: Random, client = ""): string {
  const digits = random.token();
  // A `Random` of the caller's own may return less, of which nothing can be spared.
  const isNamed = client !== "" && digits.length === TOKEN_LENGTH - MARK.length;
  return isNamed ? MARK + client + digits.slice(CLIENT_DIGITS) : MARK + digits;
}

/** Reports whether `text` is the digits of a client with a name. */
export function isClient(text: string): boolean {
  return text.length === CLIENT_DIGITS && text.startsWith(NAMED);
}

/** Returns the digits of a token that may name its client; undefined for what is no token of ours. */
export function clientOf(token: string): string | undefined {
  return token.length === TOKEN_LENGTH && token.startsWith(MARK)
    ? token.slice(MARK.length, MARK.length + CLIENT_DIGITS)
    : undefined;
}
