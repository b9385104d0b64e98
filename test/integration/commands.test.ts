import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));

function npmTest(...selection: string[]): { status: number | null; last: string | undefined } {
  const { status, stdout } = spawnSync(process.execPath, ["scripts/test.mjs", ...selection], {
    cwd: root,
    encoding: "utf8",
  });
  return { status, last: stdout.trimEnd().split("\n").at(-1) };
}

it("npm test ends with the numbers of vitest, and with code 0 if all tests passed", { timeout: 120_000 }, () => {
  expect(npmTest("test/support/test/redis-binary.test.ts")).toEqual({ status: 0, last: "3 passed, 0 failed" });
});

it("npm test counts a run without tests as failed, and ends with code 1", { timeout: 120_000 }, () => {
  expect(npmTest("no-such-file")).toEqual({ status: 1, last: "0 passed, 1 failed" });
});

it("the CI script runs the README's test command, and tolerates no flaky test", () => {
  expect(readFileSync(new URL("../../.ci/run", import.meta.url), "utf8")).toMatch(/^exec npm test\b.* -- --strict\b/m);
  expect(readFileSync(new URL("../../README.md", import.meta.url), "utf8")).toMatch(/^npm test$/m);
});
