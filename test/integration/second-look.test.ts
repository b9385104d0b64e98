import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { temporaryFolder } from "@x/test-support";
import { describe, expect, it } from "vitest";

interface Failure {
  readonly file?: string;
  readonly title: string;
  readonly error: string;
}
interface File {
  readonly passed: readonly string[];
  readonly failed: readonly Failure[];
  readonly skipped: number;
}
interface Report {
  readonly files: Readonly<Record<string, File>>;
  readonly errors: readonly string[];
}
interface Verdict {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly failures: readonly Failure[];
  readonly flaky: readonly Failure[];
}

const root = fileURLToPath(new URL("../../", import.meta.url));
const { filesToRepeat, judge, reportOf } = (await import(
  new URL("../../scripts/second-look.mjs", import.meta.url).href
)) as {
  filesToRepeat: (report: Report) => string[];
  judge: (first: Report, second?: Report, isStrict?: boolean) => Verdict;
  reportOf: (paths: readonly string[], modules: readonly unknown[], errors: readonly object[]) => Report;
};

const OUTSIDE = "(outside its tests)";

function look(passed: readonly string[], failed: readonly string[] = []): File {
  return { passed, failed: failed.map((title) => ({ title, error: `${title} failed` })), skipped: 0 };
}

const report = (files: Record<string, File>, errors: string[] = []): Report => ({ files, errors });

describe("the second look", () => {
  it("runs the files in which a test failed", () => {
    const first = report({ a: look(["one"]), b: look(["one"], ["two"]), c: look(["one"], [OUTSIDE]) });
    expect(filesToRepeat(first)).toEqual(["b", "c"]);
  });

  it("does not run if more than eight files failed, or if an error belongs to no file", () => {
    const files = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`${index}`, look([], ["one"])]));
    expect(filesToRepeat(report(files(8)))).toHaveLength(8);
    expect(filesToRepeat(report(files(9)))).toEqual([]);
    expect(filesToRepeat(report(files(1), ["vitest failed"]))).toEqual([]);
  });
});

describe("the verdict", () => {
  const first = report({ a: look(["one"]), b: look(["one"], ["two"]) });

  it("needs no second look if all tests passed", () => {
    expect(judge(report({ a: look(["one", "two"]) }))).toMatchObject({ passed: 2, failed: 0, failures: [], flaky: [] });
  });

  it("is failed without a second look", () => {
    const failure = { file: "b", title: "two", error: "two failed" };
    expect(judge(first)).toMatchObject({ passed: 2, failed: 1, failures: [failure], flaky: [] });
  });

  it("is failed for a test that fails again", () => {
    expect(judge(first, report({ b: look(["one"], ["two"]) }))).toMatchObject({ passed: 2, failed: 1, flaky: [] });
  });

  it("is flaky for a test that passes alone, with the error of the first look, and failed in strict mode", () => {
    const flaky = [{ file: "b", title: "two", error: "two failed" }];
    const second = report({ b: look(["one", "two"]) });
    expect(judge(first, second)).toMatchObject({ passed: 3, failed: 0, failures: [], flaky });
    expect(judge(first, second, true)).toMatchObject({ passed: 2, failed: 1, failures: [], flaky });
  });

  it("is flaky for a test that fails only when run alone", () => {
    expect(judge(first, report({ b: look(["two"], ["one"]) }))).toMatchObject({
      passed: 3,
      failed: 0,
      flaky: [{ title: "one" }, { title: "two" }],
    });
  });

  it("is failed for a test that the second look did not run", () => {
    expect(judge(first, report({ b: look(["one"]) }))).toMatchObject({ passed: 2, failed: 1, flaky: [] });
    expect(judge(first, report({}))).toMatchObject({ passed: 2, failed: 1, flaky: [] });
  });

  it("is failed for a test that ran only once, in a file that loads only sometimes", () => {
    expect(judge(report({ a: look([], [OUTSIDE]) }), report({ a: look(["one"], ["two"]) }))).toMatchObject({
      passed: 1,
      failed: 1,
      failures: [{ title: "two" }],
      flaky: [{ title: OUTSIDE }],
    });
  });

  it("counts the tests of a file that loads only the second time, but not the file", () => {
    const loaded = report({ a: look(["one", "two"]) });
    expect(judge(report({ a: look([], [OUTSIDE]) }), loaded)).toMatchObject({ passed: 2, failed: 0 });
    expect(judge(report({ a: look([], [OUTSIDE]) }), loaded, true)).toMatchObject({ passed: 2, failed: 1 });
    expect(judge(report({ a: look([], [OUTSIDE]) }), report({ a: look([]) }))).toMatchObject({ passed: 0, failed: 1 });
  });

  it("is failed for each error that belongs to no file", () => {
    expect(judge(report({ a: look(["one"]) }, ["vitest failed"]))).toMatchObject({ passed: 1, failed: 1 });
    expect(judge(first, report({ b: look(["one", "two"]) }, ["vitest failed"]))).toMatchObject({
      passed: 3,
      failed: 1,
    });
  });
});

describe("the report", () => {
  const moduleOf = (moduleId: string, state: string, errors: readonly object[] = []): object => ({
    moduleId,
    state: () => state,
    errors: () => errors,
    children: { allTests: () => [], allSuites: () => [] },
  });

  it("marks the file of an unhandled error as failed", () => {
    const errors = [{ message: "nobody's\nat x.ts", VITEST_TEST_PATH: "a" }];
    expect(reportOf(["a"], [moduleOf("a", "passed")], errors)).toEqual(
      report({ a: { ...look([]), failed: [{ title: OUTSIDE, error: "nobody's" }] } }),
    );
  });

  it("marks a file that did not end as failed, with the error of the process that died", () => {
    const { files, errors } = reportOf(
      ["a", "b", "c"],
      [moduleOf("a", "passed"), moduleOf("b", "pending")],
      [{ message: "worker exited" }],
    );
    expect([files["a"]?.failed, files["b"]?.failed, files["c"]?.failed]).toEqual([
      [],
      [{ title: OUTSIDE, error: "worker exited" }],
      [{ title: OUTSIDE, error: "did not end" }],
    ]);
    expect(errors).toEqual([]);
  });

  it("keeps an error that belongs to no file", () => {
    expect(reportOf(["a"], [moduleOf("a", "passed")], [{ message: "reporter" }]).errors).toEqual(["reporter"]);
  });

  it("marks a file that failed without a failed test as failed", () => {
    expect(reportOf(["a"], [moduleOf("a", "failed", [{ message: "no such import" }])], []).files["a"]?.failed).toEqual([
      { title: OUTSIDE, error: "no such import" },
    ]);
    expect(reportOf(["a"], [moduleOf("a", "failed")], []).files["a"]?.failed).toHaveLength(1);
  });
});

describe("npm test", { timeout: 120_000 }, () => {
  function npmTest(...selection: string[]): { status: number | null; end: string[]; looks: () => string } {
    const folder = mkdtempSync(join(temporaryFolder(), "looks-"));
    const config = join(root, "test/integration/second-look/vitest.config.ts");
    const { status, stdout } = spawnSync(process.execPath, ["scripts/test.mjs", "--config", config, ...selection], {
      cwd: root,
      encoding: "utf8",
      env: { ...process.env, LOOKS: folder },
    });
    const lines = stdout.trimEnd().split("\n");
    const start = lines.findIndex((line) => /^(flaky|failed): /.test(line));
    return { status, end: lines.slice(start), looks: () => readFileSync(join(folder, "test"), "utf8") };
  }
  const file = (name: string): string => `test/integration/second-look/${name}.look.ts`;
  const flaky = [
    `flaky: ${file("flaky")} > ${OUTSIDE}`,
    "    left open",
    `flaky: ${file("flaky")} > passes alone`,
    "    is the first look: expected true to be false // Object.is equality",
  ];

  it("names a flaky test above its last line, and ends with code 0", () => {
    const { status, end, looks } = npmTest(file("flaky"));
    expect(end.toSorted()).toEqual(
      [...flaky, "2 flaky: failed in one of two looks, counted as passed", "2 passed, 0 failed"].toSorted(),
    );
    expect(end.slice(-2)).toEqual(["2 flaky: failed in one of two looks, counted as passed", "2 passed, 0 failed"]);
    expect(status).toBe(0);
    expect(looks()).toBe("looked\nlooked\n");
  });

  it("counts a flaky test as failed in strict mode", () => {
    const { status, end } = npmTest("--strict", file("flaky"));
    expect(end.slice(-2)).toEqual(["2 flaky: failed in one of two looks, counted as failed", "1 passed, 2 failed"]);
    expect(status).toBe(1);
  });

  it("fails for an error that occurs twice, even outside a test", () => {
    const { status, end } = npmTest(file("failing"), file("rejecting"));
    expect(end).toEqual(
      expect.arrayContaining([
        `failed: ${file("failing")} > never passes`,
        "    expected 1 to be 2 // Object.is equality",
        `failed: ${file("rejecting")} > ${OUTSIDE}`,
        "    nobody's",
      ]),
    );
    expect(end.at(-1)).toBe("2 passed, 2 failed");
    expect(status).toBe(1);
  });
});
