import { expect, it } from "vitest";
import { installedScripts } from "../../src/bullmq/bullmq.ts";
import { startOf } from "../../src/scripts/rules/lua.ts";

/** The head of a script runs once for many ends, so the ends would share the state of the head. */
export function testScripts(): void {
  it("defines only functions before the main part of the script that ends jobs, so that one run can serve many ends", () => {
    const lua = installedScripts()["moveToFinished"]?.lua ?? "";
    const start = startOf(lua);
    const head = lua
      .slice(0, start)
      .replaceAll(/--\[\[.*?\]\]/gs, "")
      .replaceAll(/--.*$/gm, "");
    const lines = head.split("\n").filter((line) => /^\S/.test(line) && line.trimEnd() !== "end");
    const isFunction = /^local function \w+\(|^local \w+ = function ?\(/;
    expect(lines.filter((line) => !isFunction.test(line)).map((line) => line.trim())).toEqual([
      "local rcall = redis.call",
    ]);
    expect(lines.length).toBeGreaterThan(30);
    for (const replaced of [
      /^local function trimEvents\(/m,
      /^local function promoteDelayedJobs\((?:\s*\w+,){6} timestamp,/m,
    ]) {
      expect(head).toMatch(replaced);
    }
    expect(lua.slice(start)).not.toMatch(/^\s*(?:local )?function \w/m);
  });
}
