/** Uses locks and waiters, closes nothing, and has to end all the same. */
import { Redlock } from "@x/redlock-core";

const [path = ""] = process.argv.slice(2);
const [redlock, other] = [1, 2].map(() => new Redlock([{ path }], { nodeTimeout: 30_000 })) as [Redlock, Redlock];
const lock = await redlock.acquire("forgotten", { autoExtend: true });
await other.acquire("forgotten", { timeout: 200 }).catch(() => undefined);
await other.acquire("second");
const mine = await redlock.acquire("mine", { ttl: 1_000 });
await redlock.acquire("mine", { timeout: Number.POSITIVE_INFINITY });
if (mine.isHeld()) throw new Error("two holders");
process.stdout.write(`done ${lock.isHeld()}\n`);
