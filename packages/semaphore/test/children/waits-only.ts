/** Waits for answers about a latch with nothing else that keeps the process alive, and must receive the answers. */
import { QuorumUnreachableError, Redlock } from "@x/redlock-core";
import { CountDownLatch, LatchClosedError } from "@x/semaphore";

const [path = ""] = process.argv.slice(2);
const latchAt = (socket: string): CountDownLatch =>
  new CountDownLatch(new Redlock({ path: socket }, { nodeTimeout: 30_000 }), "alone");
const refused = await latchAt(`${path}.none`)
  .countDown()
  .catch((error: unknown) => error);
if (!(refused instanceof QuorumUnreachableError))
  throw new Error("counted down where no server is", { cause: refused });
process.stdout.write("refused\n");
const closed = await latchAt(path)
  .wait({ timeout: 300 })
  .catch((error: unknown) => error);
if (!(closed instanceof LatchClosedError)) throw new Error("open without being set", { cause: closed });
process.stdout.write("closed\n");
