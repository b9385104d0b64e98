/** The replies to commands that end jobs are lost: Redis runs the command, and the connection is cut before the reply. */
import { until } from "@x/test-support";
import { Job } from "bullmq";
import { describe, expect, it } from "vitest";
import { targetOf } from "../../src/bullmq/bullmq.ts";
import { commandsOf } from "../support/commands.ts";
import { finished, jobs, Lab } from "../support/lab.ts";
import type { Key } from "./key.ts";

const COUNT = 40;
/** The reply to every tenth command that ends jobs is lost. */
const EVERY = 10;

export function testLostAnswers(key: Key): void {
  describe("lost answers", () => {
    it("lose no job", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      const recoversSoon = { lockDuration: 2_500, stalledInterval: 500, maxStalledCount: 9 };
      const worker = lab.worker(undefined, { key, concurrency: 4, autorun: false, ...recoversSoon });
      const client = await targetOf(worker, new Job(worker, "sample", {})).queue.client;
      const run = commandsOf(client);
      let ends = 0;
      client.runCommand = async (name, args) => {
        const reply = run(name, args);
        // It may reject while the connections are being cut, before it is awaited.
        reply.catch(() => undefined);
        if (name.startsWith("lane:moveToFinished") && ++ends % EVERY === 0) {
          await lab.redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        }
        return await reply;
      };
      void worker.run();
      // The queue's own connection is cut as well, and node-redis does not repeat a command.
      const ended = async (): Promise<number> => {
        const [completed, failed] = [queue.toKey("completed"), queue.toKey("failed")];
        return (await lab.redis.zcard(completed)) + (await lab.redis.zcard(failed));
      };
      for (let before = await ended(); before !== COUNT; before = await ended())
        await until(async () => (await ended()) !== before, 40_000);
      await finished(queue, COUNT);
      expect(ends).toBeGreaterThan(EVERY);
      expect(lab.overlaps()).toEqual([]);
      expect((await queue.getFailed()).map(({ failedReason }) => failedReason)).toEqual([]);
      await until(async () => (await lab.leftovers()).length === 0);
    });
  });
}
