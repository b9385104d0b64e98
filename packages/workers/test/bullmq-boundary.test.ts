import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

it("knows BullMQ in one folder only", () => {
  const src = new URL("../src/", import.meta.url);
  const files = readdirSync(fileURLToPath(src), { recursive: true, encoding: "utf8" });
  const importing = files.filter((file) => {
    return file.endsWith(".ts") && / from "bullmq(?:\/[^"]*)?"/.test(readFileSync(new URL(file, src), "utf8"));
  });
  expect(importing).not.toEqual([]);
  expect(importing.filter((file) => !file.startsWith("bullmq/"))).toEqual([]);
});
