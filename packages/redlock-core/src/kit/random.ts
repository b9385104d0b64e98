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

export const systemRandom: Random = Object.freeze({
  token(): string {
    if (used === pool.length) {
      randomFillSync(pool);
      used = 0;
    }
    used += TOKEN_BYTES;
    return pool.toString("hex", used - TOKEN_BYTES, used);
  },
  fraction: (): number => Math.random(),
});
