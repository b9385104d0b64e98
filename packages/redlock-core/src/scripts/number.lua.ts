/**
 * Fencing tokens that nodes count on from have 16 digits, so that they compare as texts, and are below what Lua and
 * JavaScript have exactly. A node whose clock or data leads elsewhere would repeat tokens, or give smaller ones, so it
 * gives none.
 */
const LEAST = 1_000_000_000_000_000;
const LIMIT = Number.MAX_SAFE_INTEGER;

/** Returns the Lua that tells whether a text is one of them. */
export const isTokenText = (text: string): string => `(#${text} == 16 and ${text} < '${LIMIT}')`;

/** Returns the Lua that tells whether a number is one of them. */
export const isToken = (number: string): string => `(${number} >= ${LEAST} and ${number} < ${LIMIT})`;

/** Redis' error for a text that is none. */
export const noToken = (text: string): string =>
  `'ERR fencing tokens have 16 digits and are below ${LIMIT}: the clock or the data of the node leads to ' .. ${text}`;
