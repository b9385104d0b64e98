/**
 * The lock protocol as a state machine. This file is what a reader has to trust: what is assumed, what can happen, and
 * what is claimed. `invariant.ts` has what the proof needs besides; the solver checks that.
 *
 * - Two attempts, A and B, stand for any two of arbitrarily many. `another` does on a node what any third one may do.
 * - Time passes in steps of any length. Between two of these steps, anything that is possible may happen, or never.
 *   So a pause, a crash of a client, and a message that is late or lost need no step of their own.
 * - Times are milliseconds that are left by some clock: until a key expires, until a lease ends.
 * - Every formula is text for the solver. `unless` removes one protection, to show that the proof needs it.
 */
import { quorumOf } from "../../packages/redlock-core/src/rules/quorum.ts";
import { type Changes, type Claim, type Machine, type Step, stepsInto, type Terms } from "./machine.ts";
import type { Protection } from "./protections.ts";
import type { Formula, Rules } from "./rules.ts";
import type { Term } from "./terms.ts";
import { add, and, atLeast, eq, ge, gt, implies, ite, le, lt, max, mul, not, num, or, sub } from "./terms.ts";

// What is assumed -----------------------------------------------------------------------------------------------------

/** Redis may expire a key this number of ms early. */
export const EARLY_MS = "2";
/** At boot, a server's clock may be corrected by up to this number of ms. */
export const BOOT_STEP_MS = "300";

/**
 * - `rates`: from the request for a lease until the client has noticed its end, at least one of the client's two clocks
 *   goes no slower than (1 - drift) of the clock of each node. Nobody knows which one. The other may do anything.
 * - `no clock`: nothing is assumed of any clock, and nodes may lose keys at any time.
 * - `wall clocks`: as `rates`, and the wall clocks of clients differ by less than the bound below when they ask.
 */
export type Assumption = "rates" | "no clock" | "wall clocks";

export interface ModelOptions {
  readonly rules: Rules;
  /** The number of nodes. `any` models one node of any number of nodes. */
  readonly nodes: number | "any";
  readonly assume?: Assumption;
  /** Default: any number from 0 to less than 1. */
  readonly drift?: number;
  readonly without?: Protection | undefined;
}

// The state -----------------------------------------------------------------------------------------------------------

export const CLIENTS = ["A", "B"] as const;
export type Client = (typeof CLIENTS)[number];

export const STATUS = { idle: "0", asking: "1", held: "2", over: "3" } as const;
export const KEY = { nobody: "0", A: "1", B: "2", another: "3" } as const;

const ATTEMPT = {
  status: "Int",
  ttl: "Real",
  /** Time left until the lease ends: by the monotonic clock, which counts suspends, and by the wall clock. */
  leftMono: "Real",
  leftWall: "Real",
  /** Which clock stays right until then: the wall clock, or else the monotonic one. The client does not know. */
  byWall: "Bool",
  /** The request for more time that is under way, and the end that it would give. */
  isExtending: "Bool",
  newTtl: "Real",
  newLeftMono: "Real",
  newLeftWall: "Real",
  newByWall: "Bool",
  /** Whether the client has ever asked for more time, so that an old request may still reach a node. */
  hasExtended: "Bool",
  /** Notes that no step reads: whether it was granted, and whether it asked when the other had been granted. */
  wasGranted: "Bool",
  askedLater: "Bool",
  /** The true time of the request, and the time since then by the clock that is right. */
  askedAt: "Real",
  waited: "Real",
} as const;

/** What a node has done for an attempt: voted for it, backed its present end, and backed the end that it asks for. */
const BACKING = { voted: "Bool", backs: "Bool", extends: "Bool" } as const;

const NODE = {
  key: "Int",
  /** Time left until the key expires, and until the node may vote, by the node's clock. */
  life: "Real",
  silence: "Real",
  /** The greatest fencing token that the node has granted. */
  register: "Real",
  /** Notes: whose vote the node cast first, and whether it lost its data before it voted for the other attempt. */
  firstVote: "Int",
  forgot: "Bool",
  A: BACKING,
  B: BACKING,
} as const;

/** `first` is the attempt that was granted first, `time` is the true time. */
interface Shape {
  readonly first: "Int";
  readonly time: "Real";
  readonly A: typeof ATTEMPT;
  readonly B: typeof ATTEMPT;
  readonly nodes: { readonly [name: string]: typeof NODE };
}
export type State = Terms<Shape>;
export type NodeTerms = Terms<typeof NODE>;

export interface Model extends Machine<Shape> {
  readonly nodes: readonly string[];
  readonly options: Required<Pick<ModelOptions, "nodes" | "assume">>;
  /** The slowest that the right clock of a client goes, compared with a node's. */
  readonly slow: Term;
  readonly hasQuorum: (s: State, x: Client, kind: keyof typeof BACKING) => Term;
}

export const ballot = (x: Client): Term => `${x}.ballot`;
export const is = (s: State, x: Client, status: keyof typeof STATUS): Term => eq(s[x].status, STATUS[status]);
export const at = (s: State, n: string): NodeTerms => s.nodes[n] as NodeTerms;
export const both = (claim: (x: Client, y: Client) => Term): Term => and(claim("A", "B"), claim("B", "A"));
/** x was granted before y. */
export const granted = (s: State, x: Client, y: Client): Term => and(eq(s.first, KEY[x]), s[y].wasGranted);

export function modelOf({ rules, nodes: count, assume = "rates", drift, without }: ModelOptions): Model {
  const unless = (name: Protection, protection: Term, instead = "true"): Term =>
    name === without ? instead : protection;
  const nodes = Array.from({ length: count === "any" ? 1 : count }, (_, index) => `n${index + 1}`);
  const onEach = (terms: (n: string) => Changes<typeof NODE>): Changes<Shape["nodes"]> =>
    Object.fromEntries(nodes.map((n) => [n, terms(n)]));
  const quorum = unless("a majority", num(quorumOf(nodes.length)), num(Math.floor(nodes.length / 2)));
  const hasQuorum: Model["hasQuorum"] = (s, x, kind) => {
    const backing = nodes.map((n) => at(s, n)[x][kind]);
    return count === "any" ? "true" : atLeast(quorum, backing);
  };
  const hasRates = assume !== "no clock";
  const hasWallClocks = assume === "wall clocks";

  const delta = drift === undefined ? "drift" : num(drift);
  const slow = sub("1", delta);
  const D = rules.quarantineMs("maxTtl", delta, "rounded");
  const constants = ["maxTtl", "D", "rounded", "A.ballot", "B.ballot"];
  if (drift === undefined) constants.push("drift");
  if (hasWallClocks) constants.push("offset", "skew", "nodeTimeout");
  const bound = lt(add(mul(slow, "skew"), "nodeTimeout"), mul(slow, slow, sub("D", BOOT_STEP_MS)));
  const assumed = [
    and(ge(delta, "0"), lt(delta, "1"), gt("maxTtl", "0"), gt(ballot("A"), "0"), gt(ballot("B"), "0")),
    and(D.where, eq("D", unless("the length of the quarantine", D.value, mul("0.5", "maxTtl")))),
    ...(hasWallClocks ? [ge("skew", "0"), gt("nodeTimeout", "0"), unless("wall clocks that agree", bound)] : []),
  ];

  // What can happen ---------------------------------------------------------------------------------------------------

  const steps: Step<Shape>[] = [];
  const step = stepsInto(steps);

  /** The client takes the lock for its own while no clock has passed the end: `remainingMs` in rules/validity.ts. */
  const believes = (s: State, x: Client): Term =>
    and(is(s, x, "held"), gt(s[x].leftMono, "0"), unless("all clocks", gt(s[x].leftWall, "0")));
  const mayVote = (n: NodeTerms): Term => unless("the quarantine", le(n.silence, "0"));
  const isTtl = (ttl: Term): Term =>
    and(gt(ttl, "0"), le(ttl, unless("ttl is at most maxTtl", "maxTtl", "(* 2 maxTtl)")));
  const validity = (ttl: Term, rounded: Term): Formula => {
    const { value, where } = rules.validityMs(ttl, delta, rounded);
    return { value: unless("the drift margin", value, ttl), where: and(isTtl(ttl), where) };
  };
  const request = { ttl: "Real", rounded: "Real", byWall: "Bool" } as const;

  const clocks = CLIENTS.flatMap((x) => [`${x}.Mono`, `${x}.Wall`]);
  const ticks: Record<string, "Real"> = Object.fromEntries(["true", ...nodes, ...clocks].map((name) => [name, "Real"]));
  step("time passes", {
    draws: ticks,
    when: (s, p) => {
      const tick = (name: string): Term => p[name] ?? "";
      const forward = ["true", ...nodes, "A.Mono", "B.Mono"].map((clock) => ge(tick(clock), "0"));
      const nodeClocks = hasWallClocks ? nodes.map((n) => ge(tick("true"), mul(slow, tick(n)))) : [];
      const keepsUp = (x: Client, byWall: Term): Term => {
        const time = ite(byWall, tick(`${x}.Wall`), tick(`${x}.Mono`));
        const others = hasWallClocks ? [...nodes, "true"] : nodes;
        return and(...others.map((other) => ge(time, mul(slow, tick(other)))));
      };
      const rightClocks = CLIENTS.flatMap((x) => [
        implies(or(is(s, x, "asking"), is(s, x, "held")), keepsUp(x, s[x].byWall)),
        implies(s[x].isExtending, keepsUp(x, s[x].newByWall)),
      ]);
      return [...forward, ...nodeClocks, ...(hasRates ? rightClocks : [])];
    },
    next: (s, p) => {
      const less = (time: Term, tick: string): Term => sub(time, p[tick] ?? "");
      const ofClient = (x: Client): Changes<typeof ATTEMPT> => ({
        leftMono: less(s[x].leftMono, `${x}.Mono`),
        leftWall: less(s[x].leftWall, `${x}.Wall`),
        newLeftMono: less(s[x].newLeftMono, `${x}.Mono`),
        newLeftWall: less(s[x].newLeftWall, `${x}.Wall`),
        waited: add(s[x].waited, ite(s[x].byWall, p[`${x}.Wall`] ?? "", p[`${x}.Mono`] ?? "")),
      });
      const ofNodes = onEach((n) => ({ life: less(at(s, n).life, n), silence: less(at(s, n).silence, n) }));
      return { time: add(s.time, p["true"] ?? ""), A: ofClient("A"), B: ofClient("B"), nodes: ofNodes };
    },
  });

  for (const x of CLIENTS) {
    const y = x === "A" ? "B" : "A";
    const own = (changes: Changes<typeof ATTEMPT>): Changes<Shape> => ({ [x]: changes });

    // lock/attempt.ts: the validity counts from before the request.
    step(`${x} asks`, {
      draws: request,
      when: (s, p) => {
        const ahead = sub(ballot(x), s.time);
        const isWallClock = and(ge(ahead, "offset"), le(ahead, add("offset", "skew")));
        return [is(s, x, "idle"), validity(p.ttl, p.rounded).where, hasWallClocks ? isWallClock : "true"];
      },
      next: (s, p) => {
        const left = validity(p.ttl, p.rounded).value;
        const notes = { askedLater: s[y].wasGranted, askedAt: s.time, waited: "0" };
        return own({ status: STATUS.asking, ttl: p.ttl, leftMono: left, leftWall: left, byWall: p.byWall, ...notes });
      },
    });
    // lock/attempt.ts, `#decideWon`
    step(`${x} has a quorum: granted`, {
      draws: { rounded: "Real" },
      when: (s, p) => [
        and(is(s, x, "asking"), hasQuorum(s, x, "voted"), validity(s[x].ttl, p.rounded).where),
        unless("the check of the validity", and(gt(s[x].leftMono, "0"), gt(s[x].leftWall, "0"))),
      ],
      next: (s, p) => {
        const fromAnswer = validity(s[x].ttl, p.rounded).value;
        const end = (left: Term): Term => unless("validity counts from the request", left, fromAnswer);
        const { leftMono, leftWall } = s[x];
        return {
          [x]: { status: STATUS.held, wasGranted: "true", leftMono: end(leftMono), leftWall: end(leftWall) },
          first: ite(eq(s.first, KEY.nobody), KEY[x], s.first),
          nodes: onEach((n) => ({ [x]: { backs: at(s, n)[x].voted } })),
        };
      },
    });
    // A refusal, a timeout, a release, a loss, a crash: lock/attempt.ts, lock/lease.ts
    step(`${x} gives up or ends`, {
      when: (s) => [or(is(s, x, "asking"), is(s, x, "held"))],
      next: () => own({ status: STATUS.over, isExtending: "false" }),
    });
    // lock/extend.ts
    step(`${x} asks for more time`, {
      draws: request,
      when: (s, p) => [believes(s, x), not(s[x].isExtending), validity(p.ttl, p.rounded).where],
      next: (_, p) => {
        const left = validity(p.ttl, p.rounded).value;
        const end = { newTtl: p.ttl, newLeftMono: left, newLeftWall: left, newByWall: p.byWall };
        return {
          [x]: { isExtending: "true", hasExtended: "true", ...end },
          nodes: onEach(() => ({ [x]: { extends: "false" } })),
        };
      },
    });
    // lock/extend.ts, `countExtension`, and `laterEnd` of rules/validity.ts, which takes all clocks from one end
    step(`${x} has a quorum: extended`, {
      draws: { rounded: "Real" },
      when: (s, p) => [
        and(s[x].isExtending, hasQuorum(s, x, "extends"), validity(s[x].newTtl, p.rounded).where),
        unless("extension inside the validity", believes(s, x)),
      ],
      next: (s, p) => {
        const { leftMono: mono, leftWall: wall, newLeftMono: newMono, newLeftWall: newWall, newTtl } = s[x];
        const isLater = unless("an extension never shortens", gt(newMono, mono));
        const fromAnswer = validity(newTtl, p.rounded).value;
        const later = (now: Term, then: Term): Term =>
          unless("extension counts from its request", ite(isLater, then, now), fromAnswer);
        const leftWall = unless("one end for all clocks", later(wall, newWall), max(wall, newWall));
        const byWall = ite(isLater, s[x].newByWall, s[x].byWall);
        return {
          [x]: { isExtending: "false", leftMono: later(mono, newMono), leftWall, byWall },
          nodes: onEach((n) => ({ [x]: { backs: ite(isLater, at(s, n)[x].extends, at(s, n)[x].backs) } })),
        };
      },
    });
    step(`${x}'s extension fails`, {
      when: (s) => [s[x].isExtending],
      next: () => own({ isExtending: "false" }),
    });
  }

  for (const n of nodes) {
    const on = (changes: Changes<typeof NODE>): Changes<Shape> => ({ nodes: { [n]: changes } });
    const has = (s: State, key: keyof typeof KEY): Term => eq(at(s, n).key, KEY[key]);
    const keeps = (s: State, life: Term): Term => unless("an extension never shortens", max(at(s, n).life, life), life);

    for (const x of CLIENTS) {
      // scripts/acquire.lua.ts. The request may also arrive again, or when the attempt is long over.
      step(`${n} grants ${x}`, {
        when: (s) => [
          not(is(s, x, "idle")),
          unless("the lock check", has(s, "nobody")),
          unless("the ballot check", gt(ballot(x), at(s, n).register)),
        ],
        next: (s) => {
          const { register, firstVote } = at(s, n);
          const isInTime = hasWallClocks ? unless("late votes do not count", le(s[x].waited, "nodeTimeout")) : "true";
          const isVote = and(is(s, x, "asking"), mayVote(at(s, n)), isInTime);
          return on({
            ...{ key: KEY[x], life: s[x].ttl },
            register: unless("the register is raised", max(register, ballot(x)), register),
            firstVote: ite(and(isVote, eq(firstVote, KEY.nobody)), KEY[x], firstVote),
            [x]: { voted: or(at(s, n)[x].voted, isVote) },
          });
        },
      });
      // scripts/extend.lua.ts. lock/extend.ts does not count a node in quarantine.
      const extended = (s: State, isVote: Term): Changes<typeof NODE> => {
        const mayExtend = unless("a quarantined node does not extend", mayVote(at(s, n)));
        return { [x]: { extends: or(at(s, n)[x].extends, and(s[x].isExtending, isVote, mayExtend)) } };
      };
      step(`${n} extends ${x}`, {
        when: (s) => [has(s, x), s[x].isExtending],
        next: (s) => on({ life: keeps(s, s[x].newTtl), ...extended(s, "true") }),
      });
      step(`${n} extends ${x} by an old request`, {
        draws: { life: "Real" },
        when: (s) => [has(s, x), s[x].hasExtended],
        next: (s, p) => on({ life: keeps(s, p.life) }),
      });
      // A missing key is set again, by any request. Its node does not count.
      step(`${n} repairs ${x}`, {
        draws: { life: "Real" },
        when: (s) => [has(s, "nobody"), s[x].hasExtended],
        next: (s, p) => {
          const register = max(at(s, n).register, ballot(x));
          const isVote = unless("a repaired node does not count", "false", eq(p.life, s[x].newTtl));
          return on({ key: KEY[x], life: p.life, register, ...extended(s, isVote) });
        },
      });
      // scripts/release.lua.ts
      step(`${n} releases ${x}`, {
        when: (s) => [is(s, x, "over"), unless("release by token", has(s, x))],
        next: () => on({ key: KEY.nobody }),
      });
    }

    step(`${n}'s key expires`, {
      when: (s) => [not(has(s, "nobody")), hasRates ? le(at(s, n).life, EARLY_MS) : "true"],
      next: () => on({ key: KEY.nobody }),
    });
    // Or the node has old data. From here on, scripts/quarantine.lua.ts counts the quarantine.
    step(`${n} loses its data`, {
      draws: { key: "Int", life: "Real", register: "Real", bootStep: "Real" },
      when: (_, p) => [
        and(ge(p.key, KEY.nobody), le(p.key, KEY.another), ge(p.register, "0")),
        and(ge(p.bootStep, "0"), le(p.bootStep, BOOT_STEP_MS)),
      ],
      next: (s, { key, life, register, bootStep }) => {
        const { firstVote, forgot, A, B } = at(s, n);
        const isBetween = and(not(eq(firstVote, KEY.nobody)), not(and(A.voted, B.voted)));
        return on({ key, life, register, silence: sub("D", bootStep), forgot: or(forgot, isBetween) });
      },
    });
    step(`${n} grants another`, {
      draws: { life: "Real", register: "Real" },
      when: (s, p) => [has(s, "nobody"), ge(p.register, at(s, n).register)],
      next: (_, { life, register }) => on({ key: KEY.another, life, register }),
    });
    step(`${n} extends another`, {
      draws: { life: "Real" },
      when: (s) => [has(s, "another")],
      next: (_, { life }) => on({ life }),
    });
    step(`${n} releases another`, {
      when: (s) => [unless("release by token", has(s, "another"))],
      next: () => on({ key: KEY.nobody }),
    });
    // Resources share registers.
    step(`${n} raises its register`, {
      draws: { register: "Real" },
      when: (s, p) => [ge(p.register, at(s, n).register)],
      next: (_, { register }) => on({ register }),
    });
  }

  // What is claimed ---------------------------------------------------------------------------------------------------

  /** A node that voted for both kept its data between these votes. If wall clocks agree, it may have lost the data. */
  const isKept = (s: State): Term =>
    or(...nodes.map((n) => and(at(s, n).A.voted, at(s, n).B.voted, hasWallClocks ? "true" : not(at(s, n).forgot))));
  const rise = (x: Client, y: Client): Term => lt(ballot(x), ballot(y));
  const claim = (name: string, holds: Claim<Shape>["holds"]): Claim<Shape> => ({ name, holds });
  const bothGranted = (s: State): Term => and(s.A.wasGranted, s.B.wasGranted, isKept(s));
  const withRates = [
    claim("exclusion", (s) => not(and(believes(s, "A"), believes(s, "B")))),
    claim("continuity: who was granted before another never believes again", (s) =>
      both((x, y) => implies(granted(s, x, y), not(believes(s, x)))),
    ),
    claim("tokens rise in the order of the grants", (s) =>
      both((x, y) => implies(and(granted(s, x, y), isKept(s)), rise(x, y))),
    ),
  ];
  const theorems = [
    ...(hasRates ? withRates : []),
    claim("tokens rise from a grant to a client that asks later", (s) =>
      both((x, y) => implies(and(bothGranted(s), s[y].askedLater), rise(x, y))),
    ),
    claim("tokens differ", (s) => implies(bothGranted(s), not(eq(ballot("A"), ballot("B"))))),
  ];
  const ofNodes = Object.fromEntries(nodes.map((n) => [n, NODE]));
  const shape: Shape = { first: "Int", time: "Real", A: ATTEMPT, B: ATTEMPT, nodes: ofNodes };
  return { shape, constants, assumed, steps, theorems, nodes, options: { nodes: count, assume }, slow, hasQuorum };
}
