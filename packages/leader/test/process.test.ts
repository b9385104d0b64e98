import { spawnChild } from "@x/test-support";
import { expect, it } from "vitest";
import { startNodes } from "./support/redis.ts";

it.each(["main", "worker"])(
  "a process lives until its calls have answered, and not longer, with renewal on %s",
  async (renewal) => {
    await using nodes = await startNodes(1);
    const [path = ""] = nodes.paths;
    await using child = spawnChild(new URL("support/once.ts", import.meta.url), {
      args: [path, renewal],
      env: { LOCK_PATHS: path },
      execArgv: ["--import", new URL("support/threads.mjs", import.meta.url).href],
    });
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("led true");
  },
);
