import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";

/** Reports whether this is the first look. */
function isFirst(name: string): boolean {
  const file = join(process.env["LOOKS"] ?? "", name);
  const isFirst = !existsSync(file);
  appendFileSync(file, "looked\n");
  return isFirst;
}

it("passes", () => undefined);

it("passes alone", () => {
  expect(isFirst("test"), "is the first look").toBe(false);
});

afterAll(() => {
  if (isFirst("hook")) throw new Error("left open");
});
