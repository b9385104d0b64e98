/** Worker processes of one queue, and a Redis with the history of their runs. */
import { type Child, spawnChild, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import type { Task } from "./history.ts";
import type { Lab } from "./lab.ts";

export interface Crew {
  /** The Redis that `readHistory` reads. */
  readonly history: Redis;
  /** Starts a process, which ends with the lab. */
  readonly spawn: (task?: Pick<Task, "crashAt">) => Child;
}

export async function startCrew(lab: Lab, options: Task["options"]): Promise<Crew> {
  const server = await startRedis();
  lab.defer(async () => await server.stop());
  const history = new Redis({ path: server.path });
  lab.defer(async () => {
    history.disconnect();
  });
  const task: Task = { queuePath: lab.server.path, historyPath: server.path, options };
  return {
    history,
    spawn: (more = {}) => {
      const args = [JSON.stringify({ ...task, ...more })];
      const child = spawnChild(new URL("../children/worker.ts", import.meta.url), { args });
      lab.defer(async () => await child.kill());
      return child;
    },
  };
}
