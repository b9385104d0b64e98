// The reporter with which npm test runs vitest: writes what happened to the file that the environment names.
import { writeFileSync } from "node:fs";
import { reportOf } from "./second-look.mjs";

export default class Reporter {
  #paths = [];

  onTestRunStart(specifications) {
    this.#paths = specifications.map(({ moduleId }) => moduleId);
  }

  onTestRunEnd(testModules, unhandledErrors) {
    writeFileSync(process.env.X_TEST_REPORT, JSON.stringify(reportOf(this.#paths, testModules, unhandledErrors)));
  }
}
