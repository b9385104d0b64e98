import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { type Figures, figuresOf, sentencesOf, worstOf } from "./prose.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const packages = readdirSync(`${root}packages`);

const GOAL: Figures = { openers: 4, pointers: 3.5, phrases: 1 };

/** The greatest figures that are allowed. A budget may fall to the goal, and never rises. */
const BUDGETS: Readonly<Record<string, Figures>> = {
  console: GOAL,
  effects: GOAL,
  leader: GOAL,
  nestjs: GOAL,
  "node-redlock": GOAL,
  otel: GOAL,
  "redlock-core": GOAL,
  semaphore: GOAL,
  testing: GOAL,
  workers: GOAL,
  "docs and READMEs": GOAL,
  tests: GOAL,
};

const NAMES = ["openers", "pointers", "phrases"] as const;

const texts: readonly (readonly [name: string, paths: readonly string[]])[] = [
  ...packages.map((name) => [name, [`packages/${name}/src`]] as const),
  ["docs and READMEs", ["docs", "README.md", ...packages.map((name) => `packages/${name}/README.md`)]],
  ["tests", ["test", ...packages.map((name) => `packages/${name}/test`)]],
];

it("every package has a budget for its prose", () => {
  expect(Object.keys(BUDGETS).toSorted()).toEqual(texts.map(([name]) => name).toSorted());
});

it.each(texts)("the prose of %s points no more than its budget allows", (name, paths) => {
  const sentences = paths.flatMap((path) => sentencesOf(`${root}${path}`));
  const figures = figuresOf(sentences);
  const budget = BUDGETS[name] ?? GOAL;
  const relative = (text: string): string => text.replace(root, "");
  const shown = (figure: number): number => Math.round(10 * figure) / 10;
  const over = NAMES.filter((each) => shown(figures[each]) > budget[each]);
  const found = over.map((each) => `${each} ${shown(figures[each])}, at most ${budget[each]} are allowed`);
  expect({ over: found, rewrite: found.length === 0 ? [] : worstOf(sentences, 20).map(relative) }).toEqual({
    over: [],
    rewrite: [],
  });
  for (const each of NAMES) {
    const least = Math.max(GOAL[each], shown(figures[each]));
    if (least < budget[each]) process.stderr.write(`Lower the budget of ${name}: ${each} to ${least}\n`);
  }
});

it.each([
  ["It waits for the lock.", { openers: 100, pointers: 20, phrases: 0 }],
  ["Waits for the lock that the job holds.", { openers: 0, pointers: 0, phrases: 0 }],
  ["Returns the key of that of the others.", { openers: 0, pointers: 25, phrases: 100 }],
  ["This worker waits for this.", { openers: 0, pointers: 20, phrases: 0 }],
])("measures %j", (text, expected) => {
  const words = text.match(/\w+/g) ?? [];
  expect(figuresOf([{ place: "", text, words }])).toEqual(expected);
});
