import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * The files that take half a minute or more, the longest first, so that no file runs alone at the end. Each file that
 * computes is followed by two files that wait: together they keep the cores busy.
 */
const LONG = [
  "test/simulation/lanes/mutations",
  "workers/test/crash",
  "node-redlock/test/node-redlock-5-suite",
  "test/simulation/lanes/focus",
  "test/effects/chaos",
  "redlock-core/test/redlock",
  "redlock-core/test/faults",
  "workers/test/lane-faults",
  "redlock-core/test/hints",
  "test/integration/packed",
  "examples/departure-boards/test/main",
  "redlock-core/test/failover",
  "test/simulation/mutations",
  "leader/test/scheduler/chaos",
  "redlock-core/test/waiting",
  "test/benchmarks/benchmarks",
  "test/simulation/simulation",
  "test/proof/proof",
  "workers/test/contract/bullmq",
  "leader/test/outage",
  "test/chaos/chaos",
  "workers/test/partitions/cluster",
  "workers/test/chaos",
  "test/simulation/lanes/lanes",
  "redlock-core/test/half-open",
  "test/simulation/permits/permits",
  "test/simulation/elections",
  "leader/test/scheduler/policies",
  "workers/test/exclusion",
  "redlock-core/test/connections",
  "test/simulation/lanes/sifted",
  "leader/test/scheduler/scheduler",
];

/** Orders the files of a clean checkout, which has no recorded durations. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const index = LONG.findIndex((file) => moduleId.endsWith(`${file}.test.ts`));
      return index === -1 ? LONG.length : index;
    };
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b));
  }
}
