/**
 * The answers of the nodes to one step of a lock. A decided step waits for missing answers: without this wait, a client
 * that reads the keys over another connection right after the step could read from nodes that have not executed the
 * step yet.
 */
import { quarantineReason } from "../api/errors.ts";
import { Deadline, type Deadlines, type Timed } from "../kit/deadlines.ts";
import { type Answer, type AnswerObserver, isNotAsked } from "../rounds/round.ts";
import { nodeRefusalOf } from "../scripts/acquire.lua.ts";
import type { Engine } from "./engine.ts";

/** A node's part in a step. */
export type NodeAnswer =
  | {
      readonly kind: "answered";
      /** Number of resources to which the node applied the step. */
      readonly applied: number;
      /** Redis' error if the key on this node is not a lock (WRONGTYPE). */
      readonly wrongType?: string | undefined;
    }
  /** The node has failed, or its vote does not count because the node is in quarantine. */
  | { readonly kind: "failed"; readonly error: string }
  /** The other nodes had decided before this node was asked. */
  | { readonly kind: "not asked" };

/** Called once for each node, even for answers after the decision. */
export type OnAnswer = (node: number, answer: NodeAnswer) => void;

/**
 * How long a decided step waits for missing answers, in ms. A step does not wait for a node that is not connected, or
 * that has owed an answer for longer.
 */
export const GRACE_MS = 50;

/** Returns the number of resources in a reply, or whether the reply is about all of the resources. */
type AppliedTo = (value: unknown) => number | boolean;

export class StepAnswers implements Timed {
  readonly observe: AnswerObserver = (node, answer) => this.#count(node, answer);
  /** Number of nodes that did not apply the step to all resources. */
  refusals = 0;
  readonly #engine: Engine;
  readonly #graces: Deadlines;
  readonly #resourceCount: number;
  readonly #appliedTo: AppliedTo;
  readonly #onAnswer: OnAnswer;
  /** Undefined until a decided step waits. */
  #grace: Deadline | undefined;
  /** Nodes that have not answered, as bits. After the decision, only the nodes that are worth waiting for. */
  #missing: number;
  #onSettled: (() => void) | undefined;

  /** `graces` has the timeout `GRACE_MS`. */
  constructor(engine: Engine, graces: Deadlines, resourceCount: number, appliedTo: AppliedTo, onAnswer: OnAnswer) {
    this.#engine = engine;
    this.#graces = graces;
    this.#resourceCount = resourceCount;
    this.#appliedTo = appliedTo;
    this.#onAnswer = onAnswer;
    this.#missing = engine.everyNode;
  }

  /** Calls `run` when no missing answer is worth waiting for, at the latest after `GRACE_MS`. */
  whenSettled(run: () => void): void {
    this.#dropSlow();
    if (this.#missing === 0) run();
    else {
      this.#onSettled = run;
      this.#grace = new Deadline(this);
      this.#graces.start(this.#grace);
    }
  }

  onDeadline(): void {
    const run = this.#onSettled;
    this.#onSettled = undefined;
    run?.();
  }

  /** Removes the nodes whose answers are not worth waiting for. */
  #dropSlow(): void {
    if (this.#missing === 0) return;
    for (const batcher of this.#engine.batchers) {
      if (batcher.node.state !== "ready" || batcher.silentMs() >= GRACE_MS) this.#missing &= ~(1 << batcher.index);
    }
  }

  #count(node: number, answer: Answer): void {
    this.#missing &= ~(1 << node);
    const read = this.#read(answer);
    if (read.kind === "answered" && read.applied !== this.#resourceCount) this.refusals += 1;
    this.#onAnswer(node, read);
    if (this.#grace === undefined || this.#missing !== 0) return;
    this.#graces.stop(this.#grace);
    this.onDeadline();
  }

  #read(answer: Answer): NodeAnswer {
    if (isNotAsked(answer)) return { kind: "not asked" };
    if (answer.kind === "error") return { kind: "failed", error: answer.message };
    const reply = this.#appliedTo(answer.value);
    const applied = typeof reply === "number" ? reply : reply ? this.#resourceCount : 0;
    if (applied === this.#resourceCount && answer.quarantineLeftMs > 0) {
      return { kind: "failed", error: quarantineReason(answer.quarantineLeftMs) };
    }
    const refusal = nodeRefusalOf(answer.value);
    const wrongType = refusal?.kind === "held" ? refusal.wrongType : undefined;
    return { kind: "answered", applied, wrongType };
  }
}
