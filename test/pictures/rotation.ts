/** The order in which one slot starts the jobs of a hot key and of quiet keys, read from real workers. */
import { startRedis } from "@x/test-support";
import { ExclusiveWorker, type ExclusiveWorkerOptions } from "@x/workers";
import { Queue } from "bullmq";
import type { Timeline } from "./timeline.ts";

type Between = ExclusiveWorkerOptions["between"];

const KEYS: readonly string[] = [...Array.from({ length: 9 }, () => "hot"), "a", "b", "c", "a"];
const ROWS: Readonly<Record<string, Between>> = {
  '"arrival"': "arrival",
  '"rotate"': "rotate",
  "hot: weight 3": { rotate: { weights: { hot: 3 } } },
};
/** On the axis a start takes as much as a second. */
const START_MS = 1_000;

/** All jobs wait when the worker begins, so the order does not depend on time. */
async function orderWith(between: Between): Promise<readonly string[]> {
  await using server = await startRedis();
  const connection = { host: server.host, port: server.port };
  const queue = new Queue("imports", { connection });
  await queue.addBulk(KEYS.map((customerId) => ({ name: "import", data: { customerId } })));
  const order: string[] = [];
  const worker = new ExclusiveWorker<{ readonly customerId: string }>(
    "imports",
    async ({ data }) => void order.push(data.customerId),
    { connection, key: "customerId", concurrency: 1, between },
  );
  try {
    await new Promise<void>((resolve, reject) => {
      worker.on("error", reject);
      worker.on("completed", () => {
        if (order.length === KEYS.length) resolve();
      });
    });
  } finally {
    await worker.close();
    await queue.close();
  }
  return order;
}

export async function rotation(): Promise<Timeline> {
  const orders = await Promise.all(
    Object.entries(ROWS).map(async ([who, between]) => ({ who, order: await orderWith(between) })),
  );
  return {
    title: "One slot, nine jobs of a hot key before those of a, b and c: who starts when",
    endMs: KEYS.length * START_MS,
    unit: "starts",
    participants: Object.keys(ROWS),
    bars: orders.flatMap(({ who, order }) =>
      order.map((key, index) => ({
        who,
        fromMs: index * START_MS,
        toMs: (index + 0.94) * START_MS,
        text: key,
        kind: key === "hot" ? "doubtful" : "held",
      })),
    ),
    marks: [],
  };
}
