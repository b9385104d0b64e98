/** What each runtime must do: exclude, wait, extend, hand over, nest; a worker that runs the jobs of a key in order. Prints "ok". */
import assert from "node:assert/strict";
import { Redlock, ReentrancyError } from "@x/redlock-core";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";

const [host, port] = process.argv[2].split(":");
const [here, there] = [new Redlock({ host, port: Number(port) }), new Redlock({ host, port: Number(port) })];
const lock = await here.acquire("r", { ttl: 20_000 });
assert.equal(await there.tryAcquire("r"), null);
const waiting = there.acquire("r", { timeout: 60_000 });
await lock.extend();
assert.equal(await lock.release(), true);
const next = await waiting;
assert.ok(next.fencingToken > lock.fencingToken);
assert.equal(await next.release(), true);
await here.using("nested", async () => {
  await assert.rejects(
    here.using("nested", () => undefined),
    ReentrancyError,
  );
  await here.using("nested", () => undefined, { reentrancy: "join" });
});

const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const queue = new Queue("runtime", { connection });
await queue.addBulk(Array.from({ length: 20 }, (_, i) => ({ name: "job", data: { k: i % 2, i } })));
const ran = [];
let completed = 0;
await new Promise((resolve) => {
  const worker = new ExclusiveWorker("runtime", async (job) => void ran.push(job.data.i), {
    connection,
    concurrency: 10,
    key: "k",
  });
  worker.on("completed", () => {
    completed += 1;
    if (completed === 20) resolve(worker.close());
  });
});
for (const parity of [0, 1])
  assert.deepEqual(
    ran.filter((i) => i % 2 === parity),
    Array.from({ length: 10 }, (_, n) => 2 * n + parity),
  );
await queue.close();
await here.close();
await there.close();
process.stdout.write("ok\n");
process.exit(0);
