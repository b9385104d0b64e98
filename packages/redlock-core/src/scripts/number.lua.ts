/**
 * Fencing tokens that a node alone chooses.
 *
 * A number is above the last number of the node, and above the greatest number that the client received from the node.
 * A number is also at least the node's time in µs. So numbers continue to rise after a loss of data, unless the node's
 * clock was set back.
 *
 * Numbers have 16 digits, so that they compare as texts, and Lua and JavaScript represent them exactly. If its clock or
 * data leads to a number of another length, the node could repeat fencing tokens or go back to smaller ones. It
 * therefore gives no number, and the acquisition fails.
 */
import { CLAMP_US } from "../rules/ballot.ts";

const LEAST = 1_000_000_000_000_000;
const LIMIT = Number.MAX_SAFE_INTEGER;

/** Returns a Lua expression: whether `text` is a valid fencing token. */
export const isTokenText = (text: string): string => `(#${text} == 16 and ${text} < '${LIMIT}')`;

/** Returns a Lua expression: whether `number` is a valid fencing token. */
export const isToken = (number: string): string => `(${number} >= ${LEAST} and ${number} < ${LIMIT})`;

/** Returns a Lua expression: Redis' error for `text`, which is not a valid fencing token. */
export const noToken = (text: string): string =>
  `'ERR fencing tokens have 16 digits and are below ${LIMIT}: the clock or the data of the node leads to ' .. ${text}`;

/** Sets `now` to the node's time in µs, as text. */
export const readTime: string = /* lua */ `
  local time = call('TIME')
  now = #time[2] == 6 and time[1] .. time[2] or time[1] .. sub('00000' .. time[2], -6)`;

/** A Lua expression: the greatest ballot that a node accepts because of its own time. */
export const greatestBallot: string = `string.format('%.0f', now + ${CLAMP_US})`;

/** Sets `floor` to the number that the next number must exceed, as text. */
export const readFloor: string = /* lua */ `
  local floor, stored = sub(header, 2, 17), call('GET', topKey)
  if stored and stored > floor then floor = stored end`;
