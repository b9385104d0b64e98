/**
 * The packages in Bun and Deno: a smoke test of locks and of an exclusive worker, as in Node.js. A runtime that is not
 * on the PATH is skipped, and a line reports this. `npm run test:runtimes` first downloads the runtimes from the npm
 * registry.
 */
import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startRedis } from "@x/test-support";
import { expect, it } from "vitest";

const program = fileURLToPath(new URL("runtimes/smoke.mjs", import.meta.url));

const RUNTIMES = [
  { name: "node", args: [] },
  { name: "bun", args: [] },
  { name: "deno", args: ["run", "--allow-all"] },
] as const;

for (const { name, args } of RUNTIMES) {
  const { status, stdout } = spawnSync(name, ["--version"], { encoding: "utf8" });
  const version = status === 0 ? stdout.split("\n")[0] : undefined;
  if (version === undefined) process.stderr.write(`skipped: ${name} is not on the PATH\n`);

  it.skipIf(version === undefined)(`locks and workers run in ${name} ${version ?? "(not on the PATH)"}`, async () => {
    const server = await startRedis();
    try {
      const run = promisify(execFile)(name, [...args, program, `${server.host}:${server.port}`]);
      expect((await run).stdout.trim().split("\n").at(-1)).toBe("ok");
    } finally {
      await server.stop();
    }
  });
}
