import { dirname } from "node:path";
import { spawnChild, startRedis } from "@x/test-support";

const server = await startRedis();
const grandchild = spawnChild(new URL("echo.ts", import.meta.url));
process.send?.({ pids: [server.pid, grandchild.pid], folder: dirname(dirname(server.path)) });
process.on("message", (message) => {
  if (message === "return") void grandchild.kill().then(() => process.disconnect());
  if (message === "throw") throw new Error("a crash");
  if (message === "exit") process.exit(3);
});
