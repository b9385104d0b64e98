/**
 * The work of a term after each renewal: the renewal is reported, the record is written if it is due, and the candidate
 * is asked whether it is still eligible.
 */
import { QuorumUnreachableError } from "@x/redlock-core";
import { asError } from "@x/redlock-core/kit";
import type { TermEndReason } from "../errors.ts";
import type { Announcement } from "./announcement.ts";
import type { Standing } from "./standing.ts";

/** The part of a term that its upkeep uses. */
interface UpkeptTerm {
  readonly term: number;
  readonly status: string;
  isCurrent(): boolean;
  remaining(): number;
  announce(): Promise<void>;
  beginEnd(reason: TermEndReason): void;
}

interface UpkeepParts {
  readonly term: UpkeptTerm;
  readonly standing: Standing<unknown>;
  readonly record: Announcement;
  readonly isEligible: () => Promise<boolean>;
}

export class Upkeep {
  readonly #parts: UpkeepParts;
  #isUnderWay = false;
  #renewFailures = 0;

  constructor(parts: UpkeepParts) {
    this.#parts = parts;
  }

  /** The number of renewals that failed in a row. */
  get renewFailures(): number {
    return this.#renewFailures;
  }

  onRenewed(tookMs: number): void {
    const { term, standing } = this.#parts;
    if (!term.isCurrent()) return;
    this.#renewFailures = 0;
    standing.lastError = undefined;
    standing.events.emit("renewed", { term: term.term, tookMs, remainingMs: term.remaining() });
    this.start();
  }

  onRenewFailed(error: unknown): void {
    const { term, standing } = this.#parts;
    this.#renewFailures += 1;
    const remainingMs = term.remaining();
    standing.lastError = asError(error);
    standing.events.emit("renewFailed", { term: term.term, error, remainingMs });
    this.start();
  }

  /** Checks the eligibility, and writes the record if it is due. Does nothing while an earlier check runs. */
  start(): void {
    if (this.#isUnderWay || this.#parts.term.status !== "current") return;
    this.#isUnderWay = true;
    void this.#run().finally(() => {
      this.#isUnderWay = false;
    });
  }

  /** Reports why the record was not written. If too few nodes answered, the next renewal repeats the write instead. */
  onNotWritten(error: unknown): void {
    if (!(error instanceof QuorumUnreachableError)) this.#parts.standing.report(error);
  }

  /** Writing the record restores it on nodes that lost it, and finds requests to resign whose message was lost. */
  async #run(): Promise<void> {
    const { term, record, isEligible } = this.#parts;
    try {
      if (record.isDue) await term.announce();
      if (!(await isEligible())) term.beginEnd("ineligible");
    } catch (error) {
      this.onNotWritten(error);
    }
  }
}
