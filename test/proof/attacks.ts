/**
 * The result of removing each protection: the steps of a run that breaks a promise. The solver finds the times. With
 * the protection the same steps are impossible.
 */
import { prove } from "./induction.ts";
import { invariantOf } from "./invariant.ts";
import { declarationsOf, groupedOf, namesOf, startOf, transitionOf } from "./machine.ts";
import { at, ballot, type Client, type Model, modelOf, type State } from "./model.ts";
import { PROTECTIONS, type Protection } from "./protections.ts";
import type { Rules } from "./rules.ts";
import type { Answer, Solver } from "./solver.ts";
import { and, eq, evaluate, ge, le, mul, not, num, parse, type Sort, type Term, type Value } from "./terms.ts";

export interface Attack {
  readonly without: Protection;
  /**
   * The promise that breaks: two clients believe at the same time, A believes again after B, or B has no greater token.
   * `nothing`: B holds the lock.
   */
  readonly breaks: "exclusion" | "continuity" | "token order" | "nothing";
  /** Time passes between any two steps. */
  readonly steps: readonly string[];
  /** The steps before which more than some milliseconds pass. */
  readonly after: RegExp;
  /** Default: 1. */
  readonly nodes?: number;
  /** The step after which A's machine sleeps, so that its monotonic clock stands still. */
  readonly sleepsAfter?: string;
  /** The step before which A's wall clock is set back by 5 s. */
  readonly setBackBefore?: string;
  /** Additional facts about the run, such as the difference between clocks. */
  readonly given?: readonly Term[];
}

const MAX_TTL = "10000";
const DRIFT = 0.01;
const TIMEOUT_MS = 500;

const got = (x: Client, n = "n1"): readonly string[] => [`${x} asks`, `${n} grants ${x}`, `${x} has a quorum: granted`];
const EXTENDED = ["A asks for more time", "n1 extends A", "A has a quorum: extended"];
const GONE = "n1's key expires";
const LOSS = "n1 loses its data";
const END = "A gives up or ends";
const exclusion = (
  without: Protection,
  steps: readonly string[],
  after: RegExp,
  more: Partial<Attack> = {},
): Attack => ({
  ...{ without, breaks: "exclusion", steps, after },
  ...more,
});

export const ATTACKS: readonly Attack[] = [
  exclusion("the drift margin", [...got("A"), GONE, ...got("B")], /expires/),
  exclusion("validity counts from the request", [...got("A"), GONE, ...got("B")], /A has a quorum|expires/),
  exclusion("all clocks", [...got("A"), GONE, ...got("B")], /expires/, { sleepsAfter: "A has a quorum: granted" }),
  exclusion("a majority", [...got("A"), ...got("B", "n2")], /never/, { nodes: 2 }),
  exclusion("the lock check", [...got("A"), ...got("B")], /never/),
  exclusion("release by token", [...got("A"), "n1 releases another", ...got("B")], /never/),
  exclusion("the quarantine", [...got("A"), LOSS, ...got("B")], /never/),
  exclusion("the length of the quarantine", [...got("A"), LOSS, ...got("B")], /B asks/),
  exclusion("ttl is at most maxTtl", [...got("A"), LOSS, ...got("B")], /B asks|n1 grants B/),
  exclusion("extension counts from its request", [...got("A"), ...EXTENDED, GONE, ...got("B")], /extended|expires/),
  exclusion(
    "an extension never shortens",
    [...got("A"), ...EXTENDED, "n1 extends A by an old request", GONE, ...got("B")],
    /expires/,
  ),
  exclusion("one end for all clocks", [...got("A"), ...EXTENDED, GONE, ...got("B")], /expires/, {
    sleepsAfter: "A has a quorum: extended",
    setBackBefore: "A asks for more time",
  }),
  exclusion(
    "a quarantined node does not extend",
    [
      ...["A asks", "n2 grants A", "n3 grants A", "A has a quorum: granted", "B asks", "n1 grants B", LOSS],
      ...["A asks for more time", "n1 repairs A", "A's extension fails"],
      ...["A asks for more time", "n1 extends A", "n3 extends A", "A has a quorum: extended"],
      ...["n2's key expires", "n2 grants B", "B has a quorum: granted"],
    ],
    /n2's key expires/,
    { nodes: 3 },
  ),
  {
    without: "extension inside the validity",
    breaks: "continuity",
    steps: [
      ...[...got("A"), "A asks for more time", GONE, ...got("B"), "B gives up or ends", "n1 releases B"],
      ...["n1 repairs A", "n1 extends A", "A has a quorum: extended"],
    ],
    after: /more time|expires/,
  },
  {
    without: "the check of the validity",
    breaks: "token order",
    steps: [
      "B asks",
      "n1 grants B",
      GONE,
      "A asks",
      "n1 grants A",
      "A has a quorum: granted",
      "B has a quorum: granted",
    ],
    after: /expires/,
  },
  {
    without: "the register is raised",
    breaks: "token order",
    steps: [...got("A"), END, "n1 releases A", ...got("B")],
    after: /never/,
  },
  {
    without: "the ballot check",
    breaks: "token order",
    steps: [...got("A"), END, "n1 releases A", ...got("B")],
    after: /never/,
  },
  {
    without: "late votes do not count",
    breaks: "token order",
    steps: [...got("A"), END, LOSS, ...got("B")],
    after: /B asks|n1 grants B/,
    given: [eq("nodeTimeout", num(TIMEOUT_MS)), le("skew", num(TIMEOUT_MS))],
  },
  {
    without: "wall clocks that agree",
    breaks: "token order",
    steps: [...got("A"), END, LOSS, ...got("B")],
    after: /B asks|n1 grants B/,
    given: [eq("nodeTimeout", num(TIMEOUT_MS))],
  },
];

/** One moment of a run: the event, and every value after it. Clocks show the milliseconds since the start. */
export interface Moment {
  readonly step: string;
  readonly time: number;
  readonly clocks: Readonly<Record<string, number>>;
  readonly values: ReadonlyMap<string, Value>;
}

export interface Run {
  readonly answer: Answer;
  /** The moments of the run. Empty if the steps are impossible. */
  readonly moments: readonly Moment[];
  readonly constants: ReadonlyMap<string, Value>;
}

/** Returns the model in which an attack is played. */
export function modelFor(attack: Attack, rules: Rules, isRemoved: boolean): Model {
  const { nodes = 1, without } = attack;
  return modelOf({ rules, nodes, drift: DRIFT, assume: "wall clocks", without: isRemoved ? without : undefined });
}

export interface PlayOptions {
  readonly rules: Rules;
  /** Default: true. */
  readonly isRemoved?: boolean;
  /** Additional facts about the run. */
  readonly given?: readonly Term[];
  /** The shortest time between two steps. A wait that does not matter is at most four times as long. Default: 5. */
  readonly pauseMs?: number;
}

/** Looks for times at which the steps of the attack are possible, and the promise is broken at the end. */
export async function play(
  solver: Solver,
  attack: Attack,
  { rules, isRemoved = true, given = [], pauseMs = 5 }: PlayOptions,
): Promise<Run> {
  const model = modelFor(attack, rules, isRemoved);
  const names = ["time passes", ...attack.steps.flatMap((name) => [name, "time passes"])];
  const declarations = declarationsOf(model);
  const assertions: Term[] = [...model.assumed, ...(attack.given ?? []), ...given, eq("maxTtl", MAX_TTL)];
  let state = namesOf(model);
  const start = groupedOf(model.shape, state);
  assertions.push(...startOf(model, state), eq(start.time, "0"));
  for (const n of model.nodes) assertions.push(eq(at(start, n).register, "0"), eq(at(start, n).silence, "0"));
  const states = [state];
  let isAsleep = false;
  for (const [index, name] of names.entries()) {
    const step = model.steps.find((each) => each.name === name);
    if (step === undefined) throw new Error(`no step ${name}`);
    const tag = `@${index + 1}`;
    const transition = transitionOf(model, step, state, tag);
    for (const [own, sort] of transition.declarations) declarations.set(own, sort);
    assertions.push(...transition.assertions, ...(name === "time passes" ? timing(index, tag) : drawing(name, tag)));
    state = transition.after;
    states.push(state);
    if (name === attack.sleepsAfter) isAsleep = true;
  }

  /** Every correct clock is near the true time. Times that do not matter are short. */
  function timing(index: number, tag: string): readonly Term[] {
    const tick = (of: string): Term => `draw.${of}${tag}`;
    const next = names[index + 1] ?? "";
    const isNear = (of: string): Term =>
      and(ge(tick(of), mul(num(1 - DRIFT), tick("true"))), le(tick(of), mul(num(1 + DRIFT), tick("true"))));
    return [
      ge(tick("true"), num(pauseMs)),
      ...(attack.after.test(next) ? [] : [le(tick("true"), num(4 * pauseMs))]),
      ...[...model.nodes, "B.Mono", "B.Wall"].map(isNear),
      isAsleep ? eq(tick("A.Mono"), "0") : isNear("A.Mono"),
      next === attack.setBackBefore ? eq(tick("A.Wall"), "(- 5000)") : isNear("A.Wall"),
    ];
  }

  /** Leases are as long as allowed, and a loss removes everything. */
  function drawing(name: string, tag: string): readonly Term[] {
    const draw = (of: string): Term => `draw.${of}${tag}`;
    if (name === LOSS)
      return [
        eq(draw("key"), "0"),
        eq(draw("register"), "0"),
        eq(draw("bootStep"), attack.breaks === "token order" ? "300" : "0"),
      ];
    if (!/asks/.test(name)) return [];
    const isLong = attack.without === "ttl is at most maxTtl" && isRemoved && name.startsWith("A");
    const isByWall =
      attack.sleepsAfter !== undefined &&
      name.startsWith("A") &&
      (attack.setBackBefore === undefined || name === attack.setBackBefore);
    return [eq(draw("ttl"), isLong ? mul("2", MAX_TTL) : MAX_TTL), isByWall ? draw("byWall") : not(draw("byWall"))];
  }

  const { answer, values } = await solver.ask(
    declarations,
    [...assertions, isBroken(attack, groupedOf(model.shape, state), isRemoved)],
    { wantsValues: true },
  );
  if (values === undefined) return { answer, moments: [], constants: new Map() };
  return { answer, moments: momentsOf(names, states, values, declarations), constants: values };
}

function isBroken({ breaks, without }: Attack, s: State, isRemoved: boolean): Term {
  const believes = (x: Client): Term =>
    and(
      eq(s[x].status, "2"),
      `(> ${s[x].leftMono} 0)`,
      isRemoved && without === "all clocks" ? "true" : `(> ${s[x].leftWall} 0)`,
    );
  if (breaks === "nothing") return believes("B");
  if (breaks === "exclusion") return and(believes("A"), believes("B"));
  const isSecond = and(eq(s.first, "1"), s.B.wasGranted);
  return and(isSecond, breaks === "continuity" ? believes("A") : le(ballot("B"), ballot("A")));
}

function momentsOf(
  names: readonly string[],
  states: readonly ReadonlyMap<string, Term>[],
  values: ReadonlyMap<string, Value>,
  declarations: ReadonlyMap<string, Sort>,
): readonly Moment[] {
  const clocks: Record<string, number> = {};
  return names.map((step, index) => {
    const tag = `@${index + 1}`;
    const terms = states[index + 1] ?? new Map<string, Term>();
    if (step === "time passes") {
      for (const name of declarations.keys()) {
        if (!name.startsWith("draw.") || !name.endsWith(tag)) continue;
        const clock = name.slice("draw.".length, -tag.length);
        clocks[clock] = (clocks[clock] ?? 0) + Number(values.get(name));
      }
    }
    const own = new Map([...terms].map(([name, term]) => [name, evaluate(parse(term), values)]));
    return { step, time: Number(own.get("time")), clocks: { ...clocks }, values: own };
  });
}

/** Returns a run as a table of text. */
export function timelineOf(attack: Attack, { moments, constants }: Run): string {
  const round = (value: Value | undefined): string => String(Math.round(Number(value)));
  const lines = moments.flatMap(({ step, time, clocks, values }) => {
    if (step === "time passes") return [];
    const [who = ""] = step.split(/ |'/);
    const facts: string[] = [];
    if (step.endsWith("asks")) facts.push(`ballot ${round(constants.get(ballot(who as Client)))}`);
    if (/granted|extended/.test(step)) facts.push(`believes for ${round(values.get(`${who}.leftMono`))} ms`);
    if (/^n. (grants|extends|repairs)/.test(step))
      facts.push(`its key lives for ${round(values.get(`nodes.${who}.life`))} ms`);
    if (step.includes("loses")) facts.push(`no vote for ${round(values.get(`nodes.${who}.silence`))} ms`);
    const shown = [time, clocks["A.Mono"], clocks["A.Wall"], clocks["B.Mono"], clocks["n1"]].map((each) =>
      round(each).padStart(7),
    );
    return [`${shown.join("")}  ${step}${facts.length > 0 ? `: ${facts.join(", ")}` : ""}`];
  });
  const head = `Without "${attack.without}" (${PROTECTIONS[attack.without]}): ${attack.breaks} breaks`;
  return [head, "   time A.mono A.wall B.mono     n1", ...lines].join("\n");
}

/** Reports whether the proof fails without the protection. */
export async function isNeeded(solver: Solver, { without, nodes = 1 }: Attack, rules: Rules): Promise<boolean> {
  const isOfWallClocks = without === "late votes do not count" || without === "wall clocks that agree";
  const model = modelOf({ rules, nodes, drift: DRIFT, assume: isOfWallClocks ? "wall clocks" : "rates", without });
  const { failures } = await prove(solver, model, invariantOf(model), { stopsEarly: true });
  return failures.length > 0;
}
