/**
 * The record of a term, which the nodes store next to the lock: the leader, its value, and after the term the end with
 * its reason. The record is written again before it expires, because nodes may have lost it. A request to resign
 * arrives as a message, or with the reply to the next write if the message was lost.
 */
import type { TermEndReason } from "../errors.ts";
import type { Written } from "../record/ledger.ts";
import type { TermRecord } from "../rules/record.ts";
import type { Standing } from "./standing.ts";

export class Announcement {
  readonly #standing: Standing<unknown>;
  readonly #token: string;
  readonly #facts: Pick<TermRecord, "term" | "id" | "sinceMs">;
  #value: string | undefined;
  #revision = 0;
  /** The first renewal after this time repeats the record. Infinity until the record was sent for the first time. */
  #dueMs: number = Number.POSITIVE_INFINITY;
  #stopListening: () => void = () => undefined;

  constructor(standing: Standing<unknown>, token: string, facts: Pick<TermRecord, "term" | "id" | "sinceMs">) {
    this.#standing = standing;
    this.#token = token;
    this.#facts = facts;
    this.#value = standing.options.value;
  }

  /** Whether the record was sent at least once. */
  get isSent(): boolean {
    return this.#dueMs < Number.POSITIVE_INFINITY;
  }

  get isDue(): boolean {
    return this.#standing.clock.monotonicMs() >= this.#dueMs;
  }

  /** Changes the value that the next write stores. */
  change(value: string): void {
    this.#value = value;
    this.#revision += 1;
  }

  /** Writes the record. If this fails, the next renewal repeats the write. @throws QuorumUnreachableError */
  async write(): Promise<Written> {
    const { options, clock } = this.#standing;
    this.#dueMs = clock.monotonicMs() + options.leaseDuration - options.retryPeriod;
    return await this.#send({}, this.#revision, false).catch((error: unknown) => {
      this.#dueMs = 0;
      throw error;
    });
  }

  /** Writes the end of the term. @throws QuorumUnreachableError */
  async writeEnd(reason: TermEndReason): Promise<Written> {
    // A node replaces a record only by a later revision.
    return await this.#send({ untilMs: Math.round(this.#standing.clock.wallMs()), reason }, this.#revision + 1, true);
  }

  /** Listens for requests to resign. A request makes the record due, and calls `onRequest`. */
  listen(onRequest: () => void): void {
    // In a later turn, so that the task does not wait. A request to resign before then is seen with the next record.
    this.#stopListening = this.#standing.clock.schedule(0, () => {
      const listening = this.#standing.ledger.listen((news) => {
        if (news !== "resign") return;
        this.#dueMs = 0;
        onRequest();
      });
      listening.catch((error: unknown) => this.#standing.report(error));
      this.#stopListening = () => void listening.then((stop) => stop()).catch(() => undefined);
    });
  }

  stopListening(): void {
    // In a later turn, so that the release of the lock is sent first.
    this.#standing.clock.schedule(0, () => this.#stopListening());
  }

  #send(end: Pick<TermRecord, "untilMs" | "reason">, revision: number, ended: boolean): Promise<Written> {
    const { instance, ledger } = this.#standing;
    const value = this.#value === undefined ? {} : { value: this.#value };
    const record: TermRecord = { ...this.#facts, instance, ...value, ...end };
    return ledger.write({ record, revision, token: this.#token, ended });
  }
}
