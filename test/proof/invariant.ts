/**
 * The lemmas that the induction needs in addition to the theorems. A reader need not trust the lemmas: the solver shows
 * that they are true at the start, that every step keeps them, and that the theorems follow.
 *
 * The main lemma is about one node: an attempt that the node has voted for is safe on it, and the node supports at most
 * one attempt.
 */
import type { Claim } from "./machine.ts";
import {
  at,
  BOOT_STEP_MS,
  ballot,
  both,
  CLIENTS,
  type Client,
  EARLY_MS,
  granted,
  is,
  KEY,
  type Model,
  type NodeTerms,
  STATUS,
  type State,
} from "./model.ts";
import { add, and, eq, ge, gt, implies, ite, le, lt, mul, not, or, sub, type Term } from "./terms.ts";

type Lemma = Claim<Model["shape"]>;

/** Returns the time that remains by the correct clock. */
const left = (s: State, x: Client): Term => ite(s[x].byWall, s[x].leftWall, s[x].leftMono);
const newLeft = (s: State, x: Client): Term => ite(s[x].newByWall, s[x].newLeftWall, s[x].newLeftMono);
const isAsking = (s: State, x: Client): Term => and(is(s, x, "asking"), gt(left(s, x), "0"));
const isHolding = (s: State, x: Client): Term => and(is(s, x, "held"), gt(left(s, x), "0"));

/** Returns the lemmas for a model. The theorems are claimed with them, unless the model has only one node of many. */
export function invariantOf(model: Model): readonly Lemma[] {
  const { nodes, assume } = model.options;
  const hasRates = assume !== "no clock";
  return [
    ...ofAttempts(model),
    ...(hasRates ? [noLeaseTooLong(model)] : []),
    ...(assume === "wall clocks" ? [wallClocks(model)] : []),
    ...model.nodes.flatMap((n) => [...ofVotes(model, n), ...(hasRates ? ofSafety(model, n) : [])]),
    ...(nodes === "any" ? [] : [...ofQuorums(model), ...model.theorems]),
  ];
}

function ofAttempts({ nodes }: Model): readonly Lemma[] {
  const isOneOf = (value: Term, values: readonly Term[]): Term => or(...values.map((one) => eq(value, one)));
  const clients = [KEY.nobody, KEY.A, KEY.B];
  return [
    {
      name: "values are what they can be",
      holds: (s) =>
        and(
          isOneOf(s.first, clients),
          ...CLIENTS.map((x) => isOneOf(s[x].status, Object.values(STATUS))),
          ...nodes.map((n) => and(isOneOf(at(s, n).key, Object.values(KEY)), isOneOf(at(s, n).firstVote, clients))),
        ),
    },
    {
      name: "an attempt has a ttl, is granted once, and extends while it is held",
      holds: (s) =>
        both((x) => {
          const { ttl, wasGranted, isExtending, hasExtended } = s[x];
          return and(
            or(is(s, x, "idle"), and(gt(ttl, "0"), le(ttl, "maxTtl"))),
            implies(is(s, x, "idle"), not(or(wasGranted, hasExtended, ...nodes.map((n) => at(s, n)[x].voted)))),
            implies(is(s, x, "asking"), not(wasGranted)),
            implies(is(s, x, "held"), wasGranted),
            implies(isExtending, is(s, x, "held")),
            implies(eq(s.first, KEY[x]), wasGranted),
            implies(wasGranted, not(eq(s.first, KEY.nobody))),
          );
        }),
    },
    {
      name: "a client asks later only if the other was granted",
      holds: (s) =>
        both((x, y) => implies(s[x].askedLater, and(not(is(s, x, "idle")), s[y].wasGranted, not(is(s, y, "asking"))))),
    },
  ];
}

function noLeaseTooLong({ slow }: Model): Lemma {
  const isShort = (time: Term, ttl: Term): Term => le(time, sub(mul(slow, ttl), EARLY_MS));
  return {
    name: "no lease is longer than its ttl minus the drift",
    holds: (s) =>
      both((x) => {
        const { ttl, newTtl, isExtending } = s[x];
        return and(
          implies(is(s, x, "asking"), isShort(left(s, x), ttl)),
          implies(is(s, x, "held"), isShort(left(s, x), "maxTtl")),
          implies(isExtending, and(gt(newTtl, "0"), le(newTtl, "maxTtl"), isShort(newLeft(s, x), newTtl))),
        );
      }),
  };
}

function ofSafety({ slow }: Model, n: string): readonly Lemma[] {
  /** The node keeps the key of x for `time` of a correct clock, or casts no vote for this time. */
  const isSafe = ({ key, life, silence }: NodeTerms, x: Client, time: Term): Term =>
    or(and(eq(key, KEY[x]), le(time, mul(slow, sub(life, EARLY_MS)))), le(time, mul(slow, silence)));
  /** Returns the facts that a client relies on, and for how long. */
  const reliance = (s: State, x: Client): readonly { readonly isRelied: Term; readonly time: Term }[] => {
    const { voted, backs, extends: extended } = at(s, n)[x];
    return [
      { isRelied: and(voted, isAsking(s, x)), time: left(s, x) },
      { isRelied: and(backs, isHolding(s, x)), time: left(s, x) },
      { isRelied: and(extended, s[x].isExtending, gt(newLeft(s, x), "0")), time: newLeft(s, x) },
    ];
  };
  const supports = (s: State, x: Client): Term => or(...reliance(s, x).map(({ isRelied }) => isRelied));
  return [
    {
      name: `an attempt is safe on ${n} if the node supports it`,
      holds: (s) =>
        both((x) => and(...reliance(s, x).map(({ isRelied, time }) => implies(isRelied, isSafe(at(s, n), x, time))))),
    },
    { name: `${n} supports one at a time`, holds: (s) => not(and(supports(s, "A"), supports(s, "B"))) },
    {
      name: `votes of ${n} are in the order of the grants`,
      holds: (s) => both((x, y) => implies(isCrossed(s, n, x, y), not(or(isAsking(s, y), granted(s, x, y))))),
    },
  ];
}

/** x and y have the vote of n, and x received it after y. */
function isCrossed(s: State, n: string, x: Client, y: Client): Term {
  return and(at(s, n)[x].voted, at(s, n)[y].voted, eq(at(s, n).firstVote, KEY[y]));
}

function ofVotes({ slow, options }: Model, n: string): readonly Lemma[] {
  const hasWallClocks = options.assume === "wall clocks";
  const lemmas: readonly Lemma[] = [
    {
      name: `votes of ${n} are in some order`,
      holds: (s) => {
        const { firstVote, forgot } = at(s, n);
        const isNobody = eq(firstVote, KEY.nobody);
        const known = CLIENTS.map((x) =>
          and(implies(at(s, n)[x].voted, not(isNobody)), implies(eq(firstVote, KEY[x]), at(s, n)[x].voted)),
        );
        return and(...known, implies(forgot, not(isNobody)));
      },
    },
    {
      name: `the register of ${n} is above all votes, and votes rise`,
      holds: (s) =>
        both((x, y) => {
          const { firstVote, forgot, register, [y]: other } = at(s, n);
          const isKnown = hasWallClocks ? or(not(forgot), other.voted) : not(forgot);
          const isAbove = ite(other.voted, lt(ballot(x), ballot(y)), ge(register, ballot(x)));
          return implies(and(eq(firstVote, KEY[x]), isKnown), isAbove);
        }),
    },
    {
      name: `a client that asks later has the later vote of ${n}`,
      holds: (s) => both((x, y) => implies(isCrossed(s, n, x, y), not(s[y].askedLater))),
    },
  ];
  const quiet: Lemma = {
    name: `after a loss, ${n} casts no vote before its time`,
    holds: (s) =>
      both((x, y) => {
        const { firstVote, forgot, silence, [y]: other } = at(s, n);
        const earliest = add(s[x].askedAt, mul(slow, sub("D", BOOT_STEP_MS)));
        const isOpen = and(eq(firstVote, KEY[x]), not(other.voted), forgot);
        return implies(isOpen, ge(add(s.time, mul(slow, silence)), earliest));
      }),
  };
  return hasWallClocks ? [...lemmas, quiet] : lemmas;
}

function wallClocks({ slow }: Model): Lemma {
  return {
    name: "a ballot is the wall clock of who asks, and a client waits by a right clock",
    holds: (s) =>
      both((x) => {
        const ahead = sub(ballot(x), s[x].askedAt);
        const isClock = and(ge(ahead, "offset"), le(ahead, add("offset", "skew")));
        const waits = implies(is(s, x, "asking"), ge(s[x].waited, mul(slow, sub(s.time, s[x].askedAt))));
        return or(is(s, x, "idle"), and(ge(s.time, s[x].askedAt), isClock, waits));
      }),
  };
}

function ofQuorums({ hasQuorum, options }: Model): readonly Lemma[] {
  const grant: Lemma = {
    name: "a grant has a quorum of votes",
    holds: (s) => both((x) => implies(s[x].wasGranted, hasQuorum(s, x, "voted"))),
  };
  if (options.assume === "no clock") return [grant];
  return [
    grant,
    {
      name: "a holder has a quorum that backs it",
      holds: (s) => both((x) => implies(is(s, x, "held"), hasQuorum(s, x, "backs"))),
    },
    exclusionByRightClocks,
    continuityByRightClocks,
  ];
}

export const exclusionByRightClocks: Lemma = {
  name: "exclusion, by right clocks",
  holds: (s) => not(and(isHolding(s, "A"), isHolding(s, "B"))),
};

export const continuityByRightClocks: Lemma = {
  name: "continuity, by right clocks",
  holds: (s) => both((x, y) => implies(granted(s, x, y), not(isHolding(s, x)))),
};
