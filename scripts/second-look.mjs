// What failed beside the other tests is looked at a second time, alone. Here is what a report of a look says, and what two of them prove.

/** More files than this failed for a reason that is not the load of the machine. */
const MOST_FILES = 8;

/** The title of what fails a file without failing one of its tests: it does not load, a hook fails, something stays open. */
const OUTSIDE = "(outside its tests)";

/**
 * What vitest tells a reporter: the titles that passed and failed in each file, and the errors of no file.
 *
 * @returns {{ files: Record<string, { passed: string[], failed: { title: string, error: string }[], skipped: number }>, errors: string[] }}
 */
export function reportOf(paths, testModules, unhandledErrors) {
  const modules = new Map(testModules.map((module) => [module.moduleId, module]));
  const files = Object.fromEntries(
    [...new Set([...paths, ...modules.keys()])].map((path) => [path, fileOf(modules.get(path))]),
  );
  const isOf = (error) => Object.hasOwn(files, error?.VITEST_TEST_PATH ?? "");
  for (const error of unhandledErrors.filter(isOf)) failOutside(files[error.VITEST_TEST_PATH], error);
  // The error of a process that died names no file; it belongs to one that did not end.
  const unended = Object.keys(files).filter((path) => !isOver(modules.get(path)));
  const others = unhandledErrors.filter((error) => !isOf(error));
  for (const [index, path] of unended.entries()) failOutside(files[path], others[index] ?? { message: "did not end" });
  return { files, errors: others.slice(unended.length).map(textOf) };
}

function isOver(module) {
  return module !== undefined && ["passed", "failed", "skipped"].includes(module.state());
}

function fileOf(module) {
  const file = { passed: [], failed: [], skipped: 0 };
  for (const test of module?.children.allTests() ?? []) {
    const { state, errors } = test.result();
    if (state === "passed") file.passed.push(test.fullName);
    else if (state === "failed") file.failed.push({ title: test.fullName, error: textOf(errors[0]) });
    else if (state === "skipped") file.skipped += 1;
  }
  const outside =
    module === undefined ? [] : [module, ...module.children.allSuites()].flatMap((suite) => suite.errors());
  if (outside.length > 0) failOutside(file, outside[0]);
  else if (module?.state() === "failed" && file.failed.length === 0) failOutside(file, { message: "failed" });
  return file;
}

function failOutside(file, error) {
  if (!has(file, OUTSIDE)) file.failed.push({ title: OUTSIDE, error: textOf(error) });
}

/** The files that get a second look: those in which something failed, or none when a second look would prove nothing. */
export function filesToRepeat({ files, errors }) {
  const failed = Object.keys(files).filter((path) => files[path].failed.length > 0);
  return errors.length > 0 || failed.length > MOST_FILES ? [] : failed;
}

/**
 * What is true after one look or two. What failed in the only look that it got, or in both, has failed. What failed in one of
 * two is flaky: it counts as passed, and as failed where `isStrict`.
 */
export function judge(first, second, isStrict = false) {
  const failures = [...first.errors, ...(second?.errors ?? [])].map((error) => ({ title: OUTSIDE, error }));
  const flaky = [];
  let [passed, skipped] = [0, 0];
  for (const [file, once] of Object.entries(first.files)) {
    const again = second?.files[file];
    const last = again ?? once;
    const failed = new Map([...(again?.failed ?? []), ...once.failed].map((failure) => [failure.title, failure]));
    passed += last.passed.filter((title) => !failed.has(title)).length;
    skipped += last.skipped;
    for (const { title, error } of failed.values()) {
      const isFlaky = again !== undefined && [once, again].some((look) => isGood(look, title));
      (isFlaky ? flaky : failures).push({ file, title, error });
      if (isFlaky && !isStrict && title !== OUTSIDE) passed += 1;
    }
  }
  return { passed, failed: failures.length + (isStrict ? flaky.length : 0), skipped, failures, flaky };
}

function isGood(look, title) {
  return !has(look, title) && (title === OUTSIDE ? look.passed.length > 0 : look.passed.includes(title));
}

function has(look, title) {
  return look.failed.some((failure) => failure.title === title);
}

/** The first line: vitest has printed the rest. */
function textOf(error) {
  return String(error?.message ?? error)
    .trim()
    .split("\n", 1)[0];
}
