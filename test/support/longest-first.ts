import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * The files that take half a minute and more, the longest first, so that none of them is left alone at the end. Beside each that computes
 * stand two that wait: together they keep the cores busy.
 */
const LONG = [
  "test/simulation/lanes/sifted",
  "test/integration/packed",
  "redlock-core/test/hints",
  "redlock-core/test/node-redlock",
  "leader/test/renewal-thread",
  "redlock-core/test/fencing-tokens",
  "redlock-core/test/faults",
  "leader/test/scheduler/chaos",
  "test/simulation/lanes/mutations",
  "leader/test/outage",
  "leader/test/task",
  "examples/departure-boards/test/main",
  "redlock-core/test/redlock",
  "leader/test/scheduler/scheduler",
  "test/simulation/simulation",
  "leader/test/scheduler/policies",
  "redlock-core/test/failover",
  "test/simulation/elections",
  "workers/test/crash",
  "leader/test/failover",
  "test/simulation/lanes/focus",
  "redlock-core/test/waiting",
  "test/chaos/chaos",
  "workers/test/chaos",
];

/** Orders the files of a clean checkout, which knows no durations. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const index = LONG.findIndex((file) => moduleId.endsWith(`${file}.test.ts`));
      return index === -1 ? LONG.length : index;
    };
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b));
  }
}
