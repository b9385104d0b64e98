/** The port to randomness; a simulator passes in a seeded one. No other file of the package draws random numbers. */
import { randomFillSync } from "node:crypto";

export interface Random {
  /** Returns a new token: 20 random bytes as 40 hex digits, as Redis' page demands ("20 bytes from /dev/urandom"). */
  token(): string;
  /** Returns a number, uniformly distributed in [0, 1). */
  fraction(): number;
}

const TOKEN_BYTES = 20;

/**
 * Random bytes for 200 tokens, filled by one call of OpenSSL. In libraries with one call per token, these calls take 11
 * to 12 % of the CPU time.
 */
const pool = Buffer.alloc(TOKEN_BYTES * 200);
let used = pool.length;

/**
 * Several tokens are converted to text together. Each of them keeps the whole text in memory, so the number is small.
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
