/**
 * The steps of a lock, for a sibling that keeps the lease itself and reports how each node voted. No step checks
 * whether the lease is held.
 */
import type { Instant } from "../kit/clock.ts";
import { type Answer, type AnswerObserver, isNotAsked } from "../rounds/round.ts";
import type { Target } from "../rules/operation.ts";
import type { LeaseEnd } from "../rules/validity.ts";
import { nodeRefusalOf } from "../scripts/acquire.lua.ts";
import { PlaceInLine } from "../waiting/place-in-line.ts";
import { type AttemptResult, isGrant, startAttempt } from "./attempt.ts";
import type { Engine } from "./engine.ts";
import { type ExtendResult, extendRound } from "./extend.ts";
import { releaseEverywhere } from "./release.ts";

/** A node's part in a step. */
export type NodeAnswer =
  | {
      readonly kind: "answered";
      /** Number of resources to which the node applied the step. */
      readonly applied: number;
      /** Milliseconds until the vote of the node counts. */
      readonly quarantineLeftMs: number;
      /** Redis' error if the key on this node is not a lock (WRONGTYPE). */
      readonly wrongType?: string | undefined;
    }
  | { readonly kind: "failed"; readonly error: string }
  /** The other nodes had decided before this node was asked. */
  | { readonly kind: "not asked" };

/** Called once for each node, even for answers after the decision. */
export type OnAnswer = (node: number, answer: NodeAnswer) => void;

/** A lease kept by the sibling. */
interface KeptLease {
  readonly token: string;
  readonly ttlMs: number;
}

export class LockSteps {
  readonly #engine: Engine;
  readonly #target: Target;

  constructor(engine: Engine, resources: readonly string[]) {
    this.#engine = engine;
    this.#target = engine.targets.of(resources);
  }

  get resourceCount(): number {
    return this.#target.resources.length;
  }

  /** Returns the place of a call that began when the wall clock showed `startedWallMs`. */
  placeAt(startedWallMs: number): PlaceInLine {
    return new PlaceInLine(this.#engine, this.#engine.hints, { target: this.#target, startedWallMs });
  }

  /** Makes one attempt. Calls `onResult` once, in the step that decides the attempt. */
  attempt(
    request: { readonly asked: Instant; readonly ttlMs: number; readonly place: PlaceInLine | undefined },
    onAnswer: OnAnswer,
    onResult: (result: AttemptResult) => void,
  ): void {
    const engine = this.#engine;
    const { asked, ttlMs, place } = request;
    startAttempt(engine, {
      target: this.#target,
      asked,
      ttlMs,
      timeoutMs: engine.options.nodeTimeout,
      place: place?.place,
      enrolment: place?.waiterForAttempt(),
      observe: this.#observer(onAnswer, (value) => isGrant(value)),
      owner: { onResult },
    });
  }

  /** Extends the lease once. If `fencingToken` is -1, nodes that have lost the key do not set it again. */
  extend(
    lease: KeptLease & { readonly fencingToken: number; readonly end: LeaseEnd },
    onAnswer: OnAnswer,
  ): Promise<ExtendResult> {
    const engine = this.#engine;
    const observe = this.#observer(onAnswer, (value) => value === 1);
    const timeoutMs = engine.options.nodeTimeout;
    return extendRound(engine, { ...lease, target: this.#target, timeoutMs, hadKeyOn: 0, observe }).result;
  }

  /**
   * Releases the keys on every node. If a node cannot be reached, the release is repeated for `ttlMs`. Resolves with
   * true if a quorum confirmed that every key held the token until now.
   */
  release({ token, ttlMs }: KeptLease, onAnswer: OnAnswer): Promise<boolean> {
    const engine = this.#engine;
    const observe = this.#observer(onAnswer, Number);
    return releaseEverywhere(engine, { target: this.#target, token, ttlMs, mayHoldOn: engine.everyNode, observe });
  }

  /** `appliedTo` returns the number of resources in a reply, or whether the reply is about all of the resources. */
  #observer(onAnswer: OnAnswer, appliedTo: (value: unknown) => number | boolean): AnswerObserver {
    return (node, answer) => onAnswer(node, this.#read(answer, appliedTo));
  }

  #read(answer: Answer, appliedTo: (value: unknown) => number | boolean): NodeAnswer {
    if (isNotAsked(answer)) return { kind: "not asked" };
    if (answer.kind === "error") return { kind: "failed", error: answer.message };
    const reply = appliedTo(answer.value);
    const applied = typeof reply === "number" ? reply : reply ? this.resourceCount : 0;
    const { quarantineLeftMs } = answer;
    const refusal = nodeRefusalOf(answer.value);
    const wrongType = refusal?.kind === "held" ? refusal.wrongType : undefined;
    return { kind: "answered", applied, quarantineLeftMs, wrongType };
  }
}
