/**
 * The steps of a lock, for a sibling that keeps the lease itself and reports how each node voted. No step checks
 * whether the lease is held.
 */
import { type Instant, readClock } from "../kit/clock.ts";
import type { Deadlines } from "../kit/deadlines.ts";
import type { Target } from "../rules/operation.ts";
import { type LeaseEnd, remainingMs } from "../rules/validity.ts";
import { PlaceInLine } from "../waiting/place-in-line.ts";
import { type Grant, isGrant, type RefusedAttempt, startAttempt } from "./attempt.ts";
import type { Engine } from "./engine.ts";
import { type ExtendResult, extendRound } from "./extend.ts";
import { releaseEverywhere, startRelease } from "./release.ts";
import { type OnAnswer, StepAnswers } from "./step-answers.ts";
import type { Attempted, AttemptOwner } from "./until-granted.ts";

/** A lease kept by the sibling. */
interface KeptLease {
  readonly token: string;
  readonly ttlMs: number;
}

interface ReleaseResult {
  readonly kind: "released" | "failed" | "lost";
}

/** Result of an extension or a release. After `failed`, another attempt may help. */
export type StepResult = ExtendResult | ReleaseResult;

/** Fencing token with which an extension repairs no node. */
const NO_FENCING_TOKEN = -1;

export class LockSteps {
  readonly #engine: Engine;
  readonly #graces: Deadlines;
  readonly #target: Target;
  readonly #driftFactor: number;

  /** `graces` has the timeout `GRACE_MS`. */
  constructor(engine: Engine, graces: Deadlines, resources: readonly string[], driftFactor: number) {
    this.#engine = engine;
    this.#graces = graces;
    this.#target = engine.targets.of(resources);
    this.#driftFactor = driftFactor;
  }

  get resourceCount(): number {
    return this.#target.resources.length;
  }

  /** Returns the place of a call that began when the wall clock showed `startedWallMs`. */
  placeAt(startedWallMs: number): PlaceInLine {
    return new PlaceInLine(this.#engine, this.#engine.hints, { target: this.#target, startedWallMs });
  }

  /** Makes one attempt. Passes the result to `owner`. A grant that has expired by then is released and refused. */
  attempt(
    request: { readonly asked: Instant; readonly ttlMs: number; readonly place: PlaceInLine | undefined },
    onAnswer: OnAnswer,
    owner: AttemptOwner<Grant, RefusedAttempt>,
  ): void {
    const engine = this.#engine;
    const { asked, ttlMs, place } = request;
    const answers = this.#answers(isGrant, onAnswer);
    startAttempt(engine, {
      target: this.#target,
      asked,
      ttlMs,
      driftFactor: this.#driftFactor,
      timeoutMs: engine.options.nodeTimeout,
      place: place?.place,
      enrolment: place?.waiterForAttempt(),
      observe: answers.observe,
      owner: {
        onResult: (result) => {
          answers.whenSettled(() =>
            owner.onResult(result.kind === "granted" ? this.#unlessExpired(result.grant) : result),
          );
        },
      },
    });
  }

  /** Extends the lease once. Nodes that have lost the key do not set it again if the fencing token is unknown. */
  async extend(
    lease: KeptLease & { readonly fencingToken: number | undefined; readonly end: LeaseEnd },
    onAnswer: OnAnswer,
  ): Promise<ExtendResult> {
    const answers = this.#answers(isOne, onAnswer);
    const { fencingToken = NO_FENCING_TOKEN } = lease;
    const result = await extendRound(this.#engine, {
      ...lease,
      fencingToken,
      target: this.#target,
      driftFactor: this.#driftFactor,
      timeoutMs: this.#engine.options.nodeTimeout,
      hadKeyOn: 0,
      observe: answers.observe,
    }).result;
    await new Promise<void>((resolve) => answers.whenSettled(resolve));
    return result;
  }

  /**
   * Releases the keys on every node. If a node cannot be reached, the release is repeated for `ttlMs`. The result is
   * `released` if a quorum confirmed that every key held the token until now, and `lost` if the nodes that may still
   * have a key with the token are fewer than a quorum.
   */
  release({ token, ttlMs }: KeptLease, onAnswer: OnAnswer): Promise<ReleaseResult> {
    const engine = this.#engine;
    const { nodes, quorum, everyNode } = engine;
    const answers = this.#answers(Number, onAnswer);
    const request = { target: this.#target, token, ttlMs, mayHoldOn: everyNode, observe: answers.observe };
    return new Promise((resolve) => {
      startRelease(engine, request, engine.clock.monotonicMs(), (isReleased) => {
        answers.whenSettled(() => {
          const isLost = answers.refusals > nodes.length - quorum;
          resolve({ kind: isReleased ? "released" : isLost ? "lost" : "failed" });
        });
      });
    });
  }

  /** Releases a lease that nobody has received. */
  drop({ token, ttlMs }: KeptLease): void {
    const mayHoldOn = this.#engine.everyNode;
    void releaseEverywhere(this.#engine, { target: this.#target, token, ttlMs, mayHoldOn });
  }

  #unlessExpired(grant: Grant): Attempted<Grant, RefusedAttempt> {
    if (remainingMs(grant.end, readClock(this.#engine.clock)) > 0) return { kind: "granted", grant };
    this.drop(grant);
    return { kind: "refused", refusal: "unreachable", votes: [], freeInMs: [] };
  }

  #answers(appliedTo: (value: unknown) => number | boolean, onAnswer: OnAnswer): StepAnswers {
    return new StepAnswers(this.#engine, this.#graces, this.resourceCount, appliedTo, onAnswer);
  }
}

function isOne(value: unknown): boolean {
  return value === 1;
}
