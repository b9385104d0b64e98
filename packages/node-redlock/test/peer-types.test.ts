/** The types of node-redlock 4 and 5 next to the types of this package: `tsc -b` compiles the same code with both. */
import { readFileSync } from "node:fs";
import type Redlock4 from "redlock4";
import { expect, expectTypeOf, it } from "vitest";
import type * as Redlock5 from "../../../node_modules/redlock/dist/index.js";
import type * as Ours5 from "../src/index.ts";
import type * as Ours4 from "../src/v4.ts";

const bodyOf = (file: string): string | undefined =>
  readFileSync(new URL(`types/${file}.ts`, import.meta.url), "utf8").split("\n// ---\n")[1];

it.each(["node-redlock-4", "node-redlock-5"])("the code of users of %s compiles unchanged", (name) => {
  expect(bodyOf(`${name}-ours`)).toMatch(/redlock\.quit\(/);
  expect(bodyOf(`${name}-ours`)).toBe(bodyOf(`${name}-theirs`));
});

type Missing<Theirs, Ours> = Exclude<keyof Theirs, keyof Ours>;

it("the entry for version 4 has each member of node-redlock 4", () => {
  // These names are only in the types: in redlock.js they are on the class.
  expectTypeOf<Missing<Redlock4, Ours4.Redlock>>().toEqualTypeOf<"Lock" | "LockError">();
  expectTypeOf<Missing<typeof Redlock4, typeof Ours4.Redlock>>().toBeNever();
  expectTypeOf<Missing<Redlock4.Lock, Ours4.Lock>>().toBeNever();
  expectTypeOf<Missing<Redlock4.LockError, Ours4.LockError>>().toBeNever();
  // The constructor refuses these names.
  type Scripts = "lockScript" | "unlockScript" | "extendScript";
  expectTypeOf<Missing<Redlock4.Options, Ours4.Options>>().toEqualTypeOf<Scripts>();
  expectTypeOf<Omit<Redlock4.Options, Scripts>>().toExtend<Ours4.Options>();
});

it("the type of `resource` includes a list, which node-redlock 4 has but its types omit", () => {
  expectTypeOf<Redlock4.Lock["resource"]>().toEqualTypeOf<string>();
  expectTypeOf<Ours4.Lock["resource"]>().toEqualTypeOf<string | string[]>();
});

it("the entry for version 5 has each member of node-redlock 5", () => {
  expectTypeOf<Missing<Redlock5.default, Ours5.Redlock>>().toBeNever();
  expectTypeOf<Missing<typeof Redlock5, typeof Ours5>>().toBeNever();
  expectTypeOf<Missing<Redlock5.Lock, Ours5.Lock>>().toBeNever();
  expectTypeOf<Missing<Redlock5.ExecutionError, Ours5.ExecutionError>>().toBeNever();
  expectTypeOf<Redlock5.Settings>().toEqualTypeOf<Ours5.Settings>();
});
