/** The run of a job that begins with the end of the one before, as the lane sees it. */
import type { Following } from "../../../packages/workers/src/bullmq/bullmq.ts";
import type { EarlyStart } from "../../../packages/workers/src/job-run/early-run.ts";

export class StepEarly implements EarlyStart {
  /** The job whose end it begins with. */
  readonly before: string;
  readonly jobId: string;
  readonly lockToken: string;
  readonly fencingToken: number;
  readonly answered: Promise<undefined> = Promise.resolve(undefined);
  state: "offered" | "declined" | "begun" | "confirmed" | "refused" = "offered";
  readonly #isLost: boolean;

  /** `isLost`: by its own clocks, when the answer is there. */
  constructor(before: string, following: Following, lock: { readonly token: string; readonly isLost: boolean }) {
    this.before = before;
    this.jobId = following.jobId;
    this.fencingToken = following.fencingToken;
    this.lockToken = lock.token;
    this.#isLost = lock.isLost;
  }

  get isFresh(): boolean {
    return !this.#isLost;
  }

  begin(): void {
    this.state = "begun";
  }

  decline(): void {
    if (this.state === "offered") this.state = "declined";
  }

  confirm(): boolean {
    if (this.#isLost) return false;
    this.state = "confirmed";
    return true;
  }

  refuse(): void {
    this.state = "refused";
  }

  claim(): undefined {
    throw new Error("the lane ends no runs");
  }

  jobFrom(): never {
    throw new Error("the lane makes no jobs");
  }
}
