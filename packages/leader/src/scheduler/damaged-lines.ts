/** Damaged lines of the register and of the mailboxes. Each is reported once and removed by the next step. */
import type { Step } from "./step.ts";

/** The most characters of a damaged field or line that a message shows, and the most messages that are remembered. */
const [LONGEST_SHOWN, MOST_REPORTED] = [100, 100];

export class DamagedLines {
  readonly #report: (error: Error) => void;
  /** Fields of the register with a damaged line, which the next step removes. */
  readonly #fields: string[] = [];
  readonly #reported = new Set<string>();

  constructor(report: (error: Error) => void) {
    this.#report = report;
  }

  /** Removes a damaged line of the register with the next step, and reports the line. */
  remove(field: string, line: string): void {
    this.#fields.push(field);
    this.report("register", field, line);
  }

  addTo({ changes }: Step): void {
    for (const field of this.#fields.splice(0)) changes.set(field, "");
  }

  /** Reports a damaged line once. A poll may find the line again before a step has removed it. */
  report(where: "register" | "mailbox", field: string, line: string): void {
    const [name, value] = [field, line].map((text) => JSON.stringify(text.slice(0, LONGEST_SHOWN)));
    const message = `${name} of the ${where} of schedules contains ${value}, which is not valid: it is removed`;
    if (this.#reported.has(message)) return;
    if (this.#reported.size >= MOST_REPORTED) this.#reported.clear();
    this.#reported.add(message);
    this.#report(new Error(message));
  }
}
