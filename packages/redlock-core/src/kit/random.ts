/** The port to randomness: a simulator passes in a seeded one. No other file of the package draws random numbers. */
import { randomFillSync } from "node:crypto";

export interface Random {
  /**
   * Returns a fresh token: 20 random bytes as 40 hex digits, as Redis' page asks for ("20 bytes from /dev/urandom").
   */
  token(): string;
  /** Returns a number that is uniform in [0, 1). */
  fraction(): number;
}

const TOKEN_BYTES = 20;

/**
 * One call into OpenSSL serves many tokens. One call for each token is 11 to 12 % of the CPU time of libraries that
 * make it.
 */
const pool = Buffer.alloc(TOKEN_BYTES * 200);
let used = pool.length;

/**
 * A few tokens become text in one call. They share its memory as long as one of them is kept, so these are not many.
 */
const PORTION_BYTES = TOKEN_BYTES * 10;
let portion = "";
let at = 0;

export const systemRandom: Random = Object.freeze({
  token(): string {
    if (at === portion.length) nextPortion();
    at += 2 * TOKEN_BYTES;
    return portion.slice(at - 2 * TOKEN_BYTES, at);
  },
  fraction: (): number => Math.random(),
});

function nextPortion(): void {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  portion = pool.toString("hex", used, used + PORTION_BYTES);
  used += PORTION_BYTES;
  at = 0;
}
