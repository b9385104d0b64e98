/** The tests of node-redlock 4.2.0, run on this project's class of the same name. */
import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { startRedisNodes } from "@x/test-support";
import { expect, it } from "vitest";

interface Report {
  readonly stats: { readonly passes: number };
  readonly failures: readonly { readonly fullTitle: string; readonly err: { readonly message?: string } }[];
}

/** Tests of unsupported features: custom scripts, and a method that is private in every version. */
const LEFT_OUT = "supports custom script functions in options|should be backwards compatible";

const resolve = (name: string): string => createRequire(import.meta.url).resolve(name);

it.concurrent.each(["ioredis", "ioredis5"])(
  "node-redlock 4's own tests pass with %s",
  { timeout: 120_000 },
  async (client) => {
    const servers = await startRedisNodes(3);
    await using _ = {
      [Symbol.asyncDispose]: async () => void (await Promise.all(servers.map((server) => server.stop()))),
    };
    const suite = resolve("redlock4/test.js");
    const hook = fileURLToPath(new URL("redlock4-hook.cjs", import.meta.url));
    // The suite's locks live for 200 ms and are extended after 100 ms, which a busy machine may miss.
    const args = ["--retries", "5", "--require", hook, "--reporter", "json", "--timeout", "20000", "--exit"];
    const report = await new Promise<string>((done) => {
      execFile(
        process.execPath,
        [resolve("mocha/bin/mocha.js"), ...args, "--grep", LEFT_OUT, "--invert", suite],
        {
          maxBuffer: 1e8,
          env: {
            ...process.env,
            X_SUITE: suite,
            X_IOREDIS: client,
            X_PORTS: servers.map(({ url }) => new URL(url).port).join(","),
          },
        },
        (_error, stdout) => done(stdout),
      );
    });
    const { stats, failures } = JSON.parse(report.slice(report.indexOf("{"))) as Report;
    expect(failures.map(({ fullTitle, err }) => `${fullTitle}: ${err.message}`)).toEqual([]);
    expect(stats.passes).toBeGreaterThan(200);
  },
);
