/** Uses locks and waiters, closes nothing, and has to end all the same. */
import { Redlock } from "@x/redlock-core";

const [path = ""] = process.argv.slice(2);
const [redlock, other] = [new Redlock([{ path }]), new Redlock([{ path }])];
const lock = await redlock.acquire("forgotten", { autoExtend: true });
await other.acquire("forgotten", { timeout: 200 }).catch(() => undefined);
await other.acquire("second");
process.stdout.write(`done ${lock.isHeld()}\n`);
