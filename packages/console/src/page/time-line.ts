/** The marks on the time line: notes, and the beginnings and ends of problems. */
import { trackedProblems } from "./rules/problems.ts";
import type { MarkView, ProblemCode, ProblemView } from "./state.ts";

const KEPT_MARKS = 50;
/** Problems whose beginning and end are marks on the time line. */
const MARKED: ReadonlySet<ProblemCode> = new Set([
  "NO_WORKER",
  "KEY_HALTED",
  "NO_QUORUM",
  "NO_LEADER",
  "LOCK_LOST",
  "NODE_DOWN",
  "NODE_QUARANTINED",
]);

export class TimeLine {
  readonly #marks: MarkView[] = [];
  /** Problems that are open, and problems that were solved a short time ago. */
  problems: readonly ProblemView[] = [];

  /** A copy of the marks, the newest first. A stream compares the marks of two states. */
  get marks(): readonly MarkView[] {
    return [...this.#marks];
  }

  add(mark: MarkView): void {
    // Of two marks of the same ms, the later one stays first.
    this.#marks.unshift(mark);
    this.#marks.sort((one, other) => other.at - one.at);
    this.#marks.splice(KEPT_MARKS);
  }

  /** Records the problems of a look, and marks what has changed. */
  record(found: Parameters<typeof trackedProblems>[1], nowMs: number): void {
    const before = this.problems;
    this.problems = trackedProblems(before, found, nowMs);
    const wasOpen = new Set(before.flatMap(({ id, solvedAt }) => (solvedAt === undefined ? id : [])));
    for (const { id, code, title, since, solvedAt } of this.problems) {
      if (!MARKED.has(code)) continue;
      if (solvedAt === undefined && !wasOpen.has(id)) this.add({ at: since, kind: "page", text: title });
      if (solvedAt !== undefined && wasOpen.has(id)) this.add({ at: solvedAt, kind: "page", text: `Solved: ${title}` });
    }
  }
}
