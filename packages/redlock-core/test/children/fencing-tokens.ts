/**
 * Acquires locks of a few resources repeatedly, with a wrong wall clock, and writes each token to a register that
 * refuses tokens not above the last token. The holder writes before it releases, so every refusal is a token out of
 * order.
 */
import { Redlock, systemClock } from "@x/redlock-core";
import { Redis } from "ioredis";

const [wanted = "0", skew = "0", registerPath = "", ...paths] = process.argv.slice(2);
const register = new Redis({ path: registerPath });
register.defineCommand("raise", {
  numberOfKeys: 1,
  lua: `
    local last = tonumber(redis.call('GET', KEYS[1])) or 0
    if tonumber(ARGV[1]) <= last then return 0 end
    redis.call('SET', KEYS[1], ARGV[1])
    return 1`,
});
const raise = (register as unknown as { raise(key: string, token: number): Promise<number> }).raise.bind(register);

const clock = { ...systemClock, wallMs: (): number => systemClock.wallMs() + Number(skew) };
// A quarantine shorter than the pause between two faults, so that a quorum may vote most of the time.
const redlock = new Redlock(
  paths.map((path) => ({ path })),
  { ttl: 1_000, maxTtl: 1_000, timeout: 60_000, nodeTimeout: 300, clock },
);

let left = Number(wanted);
const tally = { grants: 0, stale: 0, errors: [] as string[] };

async function take(resource: string): Promise<void> {
  while (left > 0) {
    left -= 1;
    try {
      const lock = await redlock.acquire(resource);
      const isNewer = await raise(resource, lock.fencingToken);
      // The register exists to refuse a write that arrives after the lease.
      if (isNewer !== 1 && lock.isHeld()) tally.stale += 1;
      tally.grants += 1;
      await lock.release();
    } catch (error) {
      tally.errors.push(String(error));
      if (tally.errors.length > 5) left = 0;
    }
  }
}

await Promise.all(Array.from({ length: 60 }, (_, index) => take(`token:${index % 30}`)));
process.send?.(tally);
await redlock.close();
register.disconnect();
