/**
 * The scheduler's state is one register, with a copy on each lock node. The leader of the term is its only writer.
 *
 * What is confirmed is on a quorum, and every later leader begins with it. That holds as long as a majority of the
 * nodes keeps its data and leases are honest. These rules make it so:
 *
 * 1. *Promise*. A leader that takes office stores its term on the nodes as it reads them. From then on a node refuses
 *    what an older term writes.
 * 2. *Reading*. It adopts the newest version that any node shows, once a quorum of whole nodes has answered, or all
 *    nodes. A node is whole if its present process was given everything. One that has restarted since may have
 *    forgotten, with whatever data it came back and however long ago that is. Where no such quorum answers for
 *    `WAIT_MS`, a quorum is believed as it is, and that is told.
 * 3. *Writing back*. It acts on nothing before a quorum has its first step, which makes what was adopted its own
 *    version.
 * 4. *Steps*. A version names one state. A step changes one version to the next. A node that has another version, or is
 *    not whole, does not take it. There is one step at a time, which is repeated as it is until a quorum has it. What
 *    it allows is done after that, and only while the term is current. Who freezes in between has lost the term when it
 *    wakes, and the next leader knows what it was about to do.
 * 5. *Gaps*. A node that did not take a step is given everything. That names the process and the version which the node
 *    has answered with. So what was sent before a restart or a loss of data is not taken after it. A term that is over
 *    gives nothing, since it may not know what a newer one has written.
 * 6. *Orders*. What is in any mailbox is taken over into the register. By the rule of order.lua.ts the line with the
 *    higher number stays. An order is taken out of the mailboxes once a quorum's register has it, and again wherever it
 *    comes back.
 */
import { median } from "@x/redlock-core/protocol";
import type { Slice } from "../kit/slice.ts";
import { isLater } from "./rules/lines.ts";
import { type Answer, type Enough, isNewer, newestOf, type Store, type Version } from "./store.ts";

interface RegisterParts {
  readonly store: Store;
  readonly term: { readonly term: number; isCurrent(): boolean };
  /**
   * Called when the register relies on a quorum that may have forgotten, ignores a value that cannot be right, or finds
   * that this process's clock is wrong. The register continues in each case.
   */
  readonly onDoubt: (error: Error) => void;
}

/** A new leader waits so long for the nodes that have forgotten nothing. */
const WAIT_MS = 5_000;
/** Clocks that differ by up to this are as good as synchronized ones are. */
const CLOCK_TOLERANCE_MS = 1_000;

export class Register {
  readonly #parts: RegisterParts;
  readonly #fields = new Map<string, string>();
  /** The version of the fields: that of the last step, confirmed or not, or the one that was adopted. */
  #version: Version | undefined;
  #nextStep = 1;
  /** Whether a quorum has what this term has written. */
  #isOurs = false;
  #flight:
    | { readonly from: Version; readonly fields: readonly string[]; readonly drops: readonly string[] }
    | undefined;
  /** Orders that a node has shown since they were last taken out. */
  readonly #shown = new Map<string, string>();
  #askedSinceMs: number | undefined;
  /** The wrong values that were reported, by node. */
  readonly #reported = new Map<string, string>();
  #isClockWrong = false;
  /** The newest term that a node has promised, if it is newer than this one. */
  newerTerm: number | undefined;
  /** Whether a node did not take a step, or may not have taken it. */
  hasGap = false;

  constructor(parts: RegisterParts) {
    this.#parts = parts;
  }

  /** The fields as of the last step, confirmed or not. */
  get fields(): ReadonlyMap<string, string> {
    return this.#fields;
  }

  get isTaken(): boolean {
    return this.#version !== undefined;
  }

  /** Follows rules 1 and 2. Resolves false if a newer term was seen. @throws QuorumUnreachableError */
  async take(slice: Slice): Promise<boolean> {
    const { store, term, onDoubt } = this.#parts;
    const { quorum, nodeCount, clock } = store.ledger;
    this.#askedSinceMs ??= clock.monotonicMs();
    const isKnown = (all: readonly Answer[]): boolean =>
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
    // What an earlier scheduler of this term did not see confirmed may still arrive, as the step after that.
    if (version.term === term.term) this.#nextStep = version.step + 2;
    this.#version = version;
    return true;
  }

  /** Returns the later of what the register and the mailboxes say. */
  newest(field: string): string | undefined {
    const [stored, shown] = [this.#fields.get(field), this.#shown.get(field)];
    return shown !== undefined && isLater(shown, stored) ? shown : stored;
  }

  /** The orders that the register lacks, as field and line. */
  get orders(): readonly (readonly [string, string])[] {
    return [...this.#shown].filter(([field, line]) => isLater(line, this.#fields.get(field)));
  }

  /** Whether there is a step to make, though nothing has changed. */
  get isDue(): boolean {
    return !this.#isOurs || this.#shown.size > 0;
  }

  /** Begins the next step. A line "" takes its field out, and the orders in `expired` leave no trace. */
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
   * Resolves when a quorum has the step (rules 3 and 4), false if a newer term was seen. To be called again if it
   * rejects.
   * @throws QuorumUnreachableError
   */
  async confirm(): Promise<boolean> {
    const { store } = this.#parts;
    const [flight, version] = [this.#flight, this.#version];
    if (flight === undefined || version === undefined) return true;
    const isConfirmed = (all: readonly Answer[]): boolean => this.#having(version, all).length >= store.ledger.quorum;
    // Of whichever nodes answer first: one that does not answer is not waited for where another has a gap.
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
   * Looks for orders and gaps on all nodes, beside the steps. Resolves false if a newer term was seen.
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

  /** Rule 5, for the nodes that lack `version`. Resolves with what the nodes answer then. */
  async #giveAll(version: Version, answers: readonly Answer[], enough: Enough): Promise<readonly Answer[]> {
    const { store, term } = this.#parts;
    const having = this.#having(version, answers);
    const gaps = answers.filter((answer) => !having.includes(answer));
    if (gaps.length === 0 || !term.isCurrent()) return answers;
    // In one turn of the event loop with the version that names it.
    const whole = { version: this.#version ?? version, fields: [...this.#fields].flat() };
    return await store.write({ ...whole, from: undefined, gaps, drops: [] }, enough);
  }

  #having(version: Version, answers: readonly Answer[]): readonly Answer[] {
    return answers.filter((each) => !each.isStale && each.isWhole && !isNewer(version, each.version));
  }

  /** Notes the orders of the answers. Returns false if a newer term was seen. */
  #hear(answers: readonly Answer[]): boolean {
    for (const [field, line] of answers.flatMap(({ mail }) => mail))
      if (isLater(line, this.#shown.get(field))) this.#shown.set(field, line);
    this.#checkValues(answers);
    const newer = answers.filter(({ isStale }) => isStale);
    if (newer.length > 0) this.newerTerm = Math.max(...newer.map(({ promised }) => promised));
    return newer.length === 0;
  }

  /** Reports the wrong values of each node once, and a wrong clock of this process once until the clock is right. */
  #checkValues(answers: readonly Answer[]): void {
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
