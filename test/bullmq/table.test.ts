/** The record of a release that has passed `npm run bullmq`, and its places. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { parse } from "yaml";
import {
  SCRIPT_SETS,
  type ScriptTexts,
  supportedReleases,
} from "../../packages/workers/src/bullmq/rules/script-sets.ts";
import { documents, tableWith, withSets } from "./table.ts";

const page = (file: string): string => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
const newest = SCRIPT_SETS.at(-1);
const { texts } = newest ?? { texts: {} as ScriptTexts };

it("widens the set of a release with known texts", () => {
  expect(tableWith(SCRIPT_SETS, "6.30.0", texts).at(-1)).toEqual({ ...newest, to: "6.30.0" });
  expect(tableWith(SCRIPT_SETS, newest?.to ?? "", texts)).toEqual(SCRIPT_SETS);
  expect(tableWith(SCRIPT_SETS, "6.3.10", texts)).toEqual(SCRIPT_SETS);
});

it("adds a set for new texts, in the order of the releases", () => {
  const changed = { ...texts, promote: "0123456789abcdef" };
  const added = { from: "5.82.0", to: "5.82.0", texts: changed };
  const sets = tableWith(SCRIPT_SETS, "5.82.0", changed);
  expect(sets).toHaveLength(SCRIPT_SETS.length + 1);
  expect(sets.filter(({ from }) => from.startsWith("5.")).at(-1)).toEqual(added);
  expect(supportedReleases(sets)).toMatch(/^5\.64\.0 to 5\.82\.0 and 6\./);
});

it("writes the sets into the source in its format", () => {
  const source = page("packages/workers/src/bullmq/rules/script-sets.ts");
  expect(withSets(source, SCRIPT_SETS)).toBe(source);
  const sets = tableWith(SCRIPT_SETS, "6.30.0", texts);
  expect(withSets(source, sets)).toBe(source.replace(`to: "${newest?.to}"`, 'to: "6.30.0"'));
});

it.each(documents)("names the supported releases in %s", (file) => {
  expect(page(file).replaceAll(/\s+/g, " ")).toContain(supportedReleases());
});

it("tests the newest release of each set in CI", () => {
  const { jobs } = parse(page(".github/workflows/ci.yml")) as {
    readonly jobs: {
      readonly bullmq: { readonly strategy: { readonly matrix: { readonly release: readonly string[] } } };
    };
  };
  expect(jobs.bullmq.strategy.matrix.release).toEqual(SCRIPT_SETS.map(({ to }) => to));
});
