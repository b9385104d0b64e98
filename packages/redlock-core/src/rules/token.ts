/**
 * Pure: creates and reads tokens, the values of the lock keys.
 *
 * Every implementation of Redlock compares whole values, so a token may begin with a mark. The mark distinguishes the
 * locks of this library from locks of other libraries, which do not notify waiters of a release. Random hex digits
 * alone would not suffice, because other libraries also write hex digits.
 */
import type { Random } from "../kit/random.ts";

const MARK = "x";

/** Length of a token whose `random.token()` has 40 characters. A custom `Random` may return another length. */
export const TOKEN_LENGTH = 41;

/** A Lua expression that is true if `value` is a token of this library. */
export const IS_OURS: string = `#value == ${TOKEN_LENGTH} and string.byte(value) == ${MARK.charCodeAt(0)}`;

/** Number of digits of a token that may identify its client. The other 28 digits are random: 112 bits. */
export const CLIENT_DIGITS = 12;

/** First character of every client ID. It is not a hex digit, so it also shows that a token contains a client ID. */
const NAMED = "n";

/** A Lua expression that is true if the token `value` contains a client ID. */
export const HAS_CLIENT: string = `string.byte(value, 2) == ${NAMED.charCodeAt(0)}`;

/** A Lua expression for the client ID in the token `value`. */
export const CLIENT_IN_LUA: string = `string.sub(value, 2, ${MARK.length + CLIENT_DIGITS})`;

/** Returns a client ID. All tokens of a client with a name begin with this ID. */
export function newClient(random: Random): string {
  return NAMED + random.token().slice(0, CLIENT_DIGITS - NAMED.length);
}

/** Returns a new token. `client` is the client ID if the client has a name. */
export function newToken(random: Random, client = ""): string {
  const digits = random.token();
  // A custom `Random` may return fewer digits, none of which may be replaced.
  const isNamed = client !== "" && digits.length === TOKEN_LENGTH - MARK.length;
  return isNamed ? MARK + client + digits.slice(CLIENT_DIGITS) : MARK + digits;
}

/** Reports whether `text` is a client ID. */
export function isClient(text: string): boolean {
  return text.length === CLIENT_DIGITS && text.startsWith(NAMED);
}

/** Returns the digits of a token that may be a client ID. Undefined if the token is not of this library. */
export function clientOf(token: string): string | undefined {
  return token.length === TOKEN_LENGTH && token.startsWith(MARK)
    ? token.slice(MARK.length, MARK.length + CLIENT_DIGITS)
    : undefined;
}
