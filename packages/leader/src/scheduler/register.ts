/**
 * The scheduler's state is one register, with a copy on each lock node. The leader of the term is its only writer.
 *
 * A confirmed version is on a quorum, and every later leader begins with this version or a newer one. The following
 * rules guarantee this as long as a majority of the nodes keeps its data and leases are honest:
 *
 * 1. *Promise*. A new leader stores its term on the nodes while it reads the register. A node with this promise refuses
 *    all writes of older terms.
 * 2. *Reading*. The new leader adopts the newest version of any node, once a quorum of whole nodes has answered, or all
 *    nodes. A node is whole if its current process has received the whole register. A node that has restarted since
 *    then may have lost data. If no quorum of whole nodes answers for `WAIT_MS`, the leader uses any quorum and reports
 *    that.
 * 3. *Writing back*. The first step of the leader turns the adopted version into the leader's own version. The leader
 *    runs nothing until a quorum has the first step.
 * 4. *Steps*. A version names one state. A step changes one version to the next. A node with another version, or a node
 *    that is not whole, refuses the step. One step at a time is sent, and repeated unchanged until a quorum has the
 *    step. The leader then performs the step's effects, but only while the term is current. A leader that freezes at
 *    this point and loses its term does nothing when it resumes. The next leader finds the step in the register.
 * 5. *Gaps*. A node that did not take a step receives the whole register. This full write names the process and version
 *    that the node last answered with. So the node ignores the write if it has restarted or lost data since. A term
 *    that is over sends no full write, because a newer term may have written more.
 * 6. *Orders*. The leader copies the orders of all mailboxes into the register. The line with the higher number wins,
 *    by the rule of order.lua.ts. An order is removed from the mailboxes once the registers of a quorum contain the
 *    order, and again if the order reappears.
 */
import { median } from "@x/redlock-core/protocol";
import type { Slice } from "../kit/slice.ts";
import {
  type Enough,
  isNewer,
  newestOf,
  type RegisterAnswer,
  type RegisterStore,
  type Version,
} from "./register-store.ts";
import { isLater } from "./rules/lines.ts";

interface RegisterParts {
  readonly store: RegisterStore;
  readonly term: { readonly term: number; isCurrent(): boolean };
  /**
   * Called when the register relies on a quorum that may have lost data, or ignores a value that cannot be right. Also
   * called when this process's clock is wrong. The register continues in each case.
   */
  readonly onDoubt: (error: Error) => void;
}

/** Longest wait of a new leader for a quorum of whole nodes. */
const WAIT_MS = 5_000;
/** Differences up to this value are normal between synchronized clocks. */
const CLOCK_TOLERANCE_MS = 1_000;

export class Register {
  readonly #parts: RegisterParts;
  readonly #fields = new Map<string, string>();
  /** Version of the fields: the version of the last step, confirmed or not, or the adopted version. */
  #version: Version | undefined;
  #nextStep = 1;
  /** Whether a quorum has a step of this term. */
  #isOurs = false;
  #flight:
    | { readonly from: Version; readonly fields: readonly string[]; readonly drops: readonly string[] }
    | undefined;
  /** Orders that a mailbox contained since the order was last removed. */
  readonly #shown = new Map<string, string>();
  #askedSinceMs: number | undefined;
  /** Wrong values that were reported, by node. */
  readonly #reported = new Map<string, string>();
  #isClockWrong = false;
  /** Newest term that a node has promised. Undefined if no node has promised a newer term than this one. */
  newerTerm: number | undefined;
  /** Whether a node did not take a step, or may not have taken the step. */
  hasGap = false;

  constructor(parts: RegisterParts) {
    this.#parts = parts;
  }

  /** Fields after the last step, confirmed or not. */
  get fields(): ReadonlyMap<string, string> {
    return this.#fields;
  }

  get isTaken(): boolean {
    return this.#version !== undefined;
  }

  /** Follows rules 1 and 2. Resolves with false if a newer term was seen. @throws QuorumUnreachableError */
  async take(slice: Slice): Promise<boolean> {
    const { store, term, onDoubt } = this.#parts;
    const { quorum, nodeCount, clock } = store.ledger;
    this.#askedSinceMs ??= clock.monotonicMs();
    const isKnown = (all: readonly RegisterAnswer[]): boolean =>
      all.some(({ isStale }) => isStale) || all.filter(({ isWhole }) => isWhole).length >= quorum;
    const answers = await store.promise(term.term, isKnown);
    if (!this.#hear(answers)) return false;
    if (!isKnown(answers) && answers.length < nodeCount) {
      if (clock.monotonicMs() - this.#askedSinceMs < WAIT_MS)
        throw store.tooFew(answers.filter(({ isWhole }) => isWhole));
      onDoubt(
        new Error(`schedules are taken over from ${answers.length} of ${nodeCount} nodes, which may have forgotten`),
      );
    }
    const { version, fields } = newestOf(answers);
    for (const [field, line] of fields) {
      if (slice.isOver) await slice.another();
      if (!field.startsWith(":")) this.#fields.set(field, line);
    }
    // An unconfirmed step of an earlier scheduler in this term may still arrive. Such a step has the next number.
    if (version.term === term.term) this.#nextStep = version.step + 2;
    this.#version = version;
    return true;
  }

  /** Returns the later of the lines in the register and in the mailboxes. */
  newest(field: string): string | undefined {
    const [stored, shown] = [this.#fields.get(field), this.#shown.get(field)];
    return shown !== undefined && isLater(shown, stored) ? shown : stored;
  }

  /** Orders that are not yet in the register, as field and line. */
  get orders(): readonly (readonly [string, string])[] {
    return [...this.#shown].filter(([field, line]) => isLater(line, this.#fields.get(field)));
  }

  /** Whether a step is needed even without changes: the first of a term, or one that removes orders. */
  get isDue(): boolean {
    return !this.#isOurs || this.#shown.size > 0;
  }

  /**
   * Begins the next step. The line "" removes its field. The orders in `expired` are only removed from the mailboxes.
   */
  begin(changes: ReadonlyMap<string, string>, expired: readonly string[] = []): void {
    const from = this.#version;
    if (from === undefined || this.#flight !== undefined) throw new Error("a step before the last was confirmed");
    const drops: string[] = [];
    for (const [field, line] of this.#shown) {
      if (!expired.includes(field) && (!this.#isOurs || isLater(line, this.#fields.get(field)))) continue;
      drops.push(field, line);
      this.#shown.delete(field);
    }
    for (const [field, line] of changes) {
      if (line === "") this.#fields.delete(field);
      else this.#fields.set(field, line);
    }
    this.#flight = { from, fields: [...changes].flat(), drops };
    this.#version = { term: this.#parts.term.term, step: this.#nextStep };
    this.#nextStep += 1;
  }

  /**
   * Resolves with true when a quorum has the step (rules 3 and 4), and with false if a newer term was seen. Call the
   * method again if it rejects.
   * @throws QuorumUnreachableError
   */
  async confirm(): Promise<boolean> {
    const { store } = this.#parts;
    const [flight, version] = [this.#flight, this.#version];
    if (flight === undefined || version === undefined) return true;
    const isConfirmed = (all: readonly RegisterAnswer[]): boolean =>
      this.#having(version, all).length >= store.ledger.quorum;
    // Any quorum of answers is enough. A node that does not answer must not delay a full write to another node.
    let answers = await store.write({ ...flight, version, gaps: [] }, () => true);
    if (!this.#hear(answers)) return false;
    if (!isConfirmed(answers)) {
      answers = await this.#giveAll(version, answers, isConfirmed);
      if (!this.#hear(answers)) return false;
      if (!isConfirmed(answers)) throw store.tooFew(this.#having(version, answers));
      this.hasGap = true;
    }
    this.hasGap ||= this.#having(version, answers).length < answers.length;
    this.#flight = undefined;
    this.#isOurs = true;
    return true;
  }

  /**
   * Looks for orders and gaps on all nodes, independently of the steps. Resolves with false if a newer term was seen.
   * @throws QuorumUnreachableError
   */
  async poll(): Promise<boolean> {
    const { store, term } = this.#parts;
    const version = this.#version;
    this.hasGap = false;
    const answers = await store.poll(term.term);
    if (!this.#hear(answers) || version === undefined) return false;
    return this.#hear(await this.#giveAll(version, answers, (all) => all.length === store.ledger.nodeCount));
  }

  /** Follows rule 5 for the nodes without `version`. Resolves with the answers after the full write. */
  async #giveAll(
    version: Version,
    answers: readonly RegisterAnswer[],
    enough: Enough,
  ): Promise<readonly RegisterAnswer[]> {
    const { store, term } = this.#parts;
    const having = this.#having(version, answers);
    const gaps = answers.filter((answer) => !having.includes(answer));
    if (gaps.length === 0 || !term.isCurrent()) return answers;
    // Version and fields must be read in the same turn of the event loop.
    const whole = { version: this.#version ?? version, fields: [...this.#fields].flat() };
    return await store.write({ ...whole, from: undefined, gaps, drops: [] }, enough);
  }

  #having(version: Version, answers: readonly RegisterAnswer[]): readonly RegisterAnswer[] {
    return answers.filter((each) => !each.isStale && each.isWhole && !isNewer(version, each.version));
  }

  /** Records the orders of the answers, and reports wrong values. Returns false if a newer term was seen. */
  #hear(answers: readonly RegisterAnswer[]): boolean {
    for (const [field, line] of answers.flatMap(({ mail }) => mail))
      if (isLater(line, this.#shown.get(field))) this.#shown.set(field, line);
    this.#checkValues(answers);
    const newer = answers.filter(({ isStale }) => isStale);
    if (newer.length > 0) this.newerTerm = Math.max(...newer.map(({ promised }) => promised));
    return newer.length === 0;
  }

  /** Reports the wrong values of each node once, and a wrong clock of this process once until the clock is right. */
  #checkValues(answers: readonly RegisterAnswer[]): void {
    for (const { node, wrong } of answers) {
      if (wrong === "" || this.#reported.get(node) === wrong) continue;
      this.#reported.set(node, wrong);
      this.#parts.onDoubt(new Error(`node ${node}: the register of schedules has a value that is ignored: ${wrong}`));
    }
    const clocks = answers.filter(({ isStale }) => !isStale).map(({ aheadMs }) => aheadMs);
    if (clocks.length === 0) return;
    const aheadMs = median(clocks);
    const isWrong = Math.abs(aheadMs) > CLOCK_TOLERANCE_MS;
    if (isWrong && !this.#isClockWrong) {
      const by = `${Math.round(Math.abs(aheadMs))} ms ${aheadMs > 0 ? "ahead of" : "behind"}`;
      const effect = aheadMs > 0 ? "early, and the next leader does not run them again" : "late";
      this.#parts.onDoubt(new Error(`this process's clock is ${by} the clocks of the lock nodes: ticks run ${effect}`));
    }
    this.#isClockWrong = isWrong;
  }
}
