/** State machines whose states are terms: their types, and the conversion of a state to a list of named values. */
import { eq, not, type Sort, type Term } from "./terms.ts";

/** The sorts of a state, in groups of any depth. */
export type Shape = { readonly [name: string]: Sort | Shape };
export type Terms<S> = { readonly [Name in keyof S]: S[Name] extends Sort ? Term : Terms<S[Name]> };
export type Changes<S> = { [Name in keyof S]?: (S[Name] extends Sort ? Term : Changes<S[Name]>) | undefined };
export type Draws = Readonly<Record<string, Sort>>;

/** A step is possible if all terms of `when` are true. The step draws some values, and changes the values of `next`. */
export interface Step<S, D extends Draws = Draws> {
  readonly name: string;
  readonly draws: D;
  readonly when: (s: Terms<S>, p: Terms<D>) => readonly Term[];
  readonly next: (s: Terms<S>, p: Terms<D>) => Changes<S>;
}

export interface Claim<S> {
  readonly name: string;
  readonly holds: (s: Terms<S>) => Term;
}

/** At the start every `Int` is 0, every `Bool` is false, and a `Real` may be anything. */
export interface Machine<S> {
  readonly shape: S;
  /** Numbers that never change during a run, and the assumptions about them. */
  readonly constants: readonly string[];
  readonly assumed: readonly Term[];
  readonly steps: readonly Step<S>[];
  readonly theorems: readonly Claim<S>[];
}

/** Returns a function that adds a step to the list. Most steps draw nothing. */
export function stepsInto<S>(
  steps: Step<S>[],
): <D extends Draws = Draws>(name: string, rest: Pick<Step<S, D>, "when" | "next"> & { readonly draws?: D }) => void {
  return (name, rest) => void steps.push({ name, draws: {}, ...rest } as unknown as Step<S>);
}

/** Returns the names of a state's values with their sorts, such as `n1.A.voted`. */
export function sortsOf(shape: Shape, prefix = ""): Map<string, Sort> {
  const sorts = new Map<string, Sort>();
  for (const [name, of] of Object.entries(shape)) {
    if (typeof of === "string") sorts.set(prefix + name, of);
    else for (const [inner, sort] of sortsOf(of, `${prefix}${name}.`)) sorts.set(inner, sort);
  }
  return sorts;
}

/** A state by the names of its values. */
export type Named = ReadonlyMap<string, Term>;

/** Returns the state in groups, as steps and claims read it. */
export function groupedOf<S>(shape: S, state: Named, prefix = ""): Terms<S> {
  const terms = Object.entries(shape as Shape).map(([name, of]) => [
    name,
    typeof of === "string" ? state.get(prefix + name) : groupedOf(of, state, `${prefix}${name}.`),
  ]);
  return Object.fromEntries(terms) as Terms<S>;
}

type Tree = { readonly [name: string]: Term | Tree | undefined };

/** Returns changes by the names of the values. */
export function changesFrom(changes: object): Map<string, Term> {
  return namedOf(changes as Tree);
}

function namedOf(changes: Tree, prefix = ""): Map<string, Term> {
  const terms = new Map<string, Term>();
  for (const [name, of] of Object.entries(changes)) {
    if (typeof of === "string") terms.set(prefix + name, of);
    else if (of !== undefined) for (const [inner, term] of namedOf(of, `${prefix}${name}.`)) terms.set(inner, term);
  }
  return terms;
}

/** Returns the facts about a state at the start. */
export function startOf<S>(machine: Machine<S>, state: Named): readonly Term[] {
  const sorts = sortsOf(machine.shape as Shape);
  return [...state].flatMap(([name, term]) => {
    const sort = sorts.get(name);
    return sort === "Real" ? [] : [sort === "Int" ? eq(term, "0") : not(term)];
  });
}

/** The conditions of a step from a state, and the state after the step. */
export interface Transition {
  readonly assertions: readonly Term[];
  readonly after: Named;
  /** The names that the step has added: the values that it draws and the values that it changes. */
  readonly declarations: ReadonlyMap<string, Sort>;
}

/** `tag` makes the new names different from earlier names. */
export function transitionOf<S>(machine: Machine<S>, step: Step<S>, before: Named, tag: string): Transition {
  const sorts = sortsOf(machine.shape as Shape);
  const draws = Object.fromEntries(Object.keys(step.draws).map((name) => [name, `draw.${name}${tag}`]));
  const declarations = new Map(Object.entries(step.draws).map(([name, sort]) => [`draw.${name}${tag}`, sort]));
  const state = groupedOf(machine.shape, before);
  const after = new Map(before);
  const equations: Term[] = [];
  for (const [name, term] of changesFrom(step.next(state, draws))) {
    const sort = sorts.get(name);
    if (sort === undefined) throw new Error(`${step.name} changes ${name}, which is not in the state`);
    if (term === before.get(name)) continue;
    after.set(name, name + tag);
    declarations.set(name + tag, sort);
    equations.push(eq(name + tag, term));
  }
  return { assertions: [...step.when(state, draws), ...equations], after, declarations };
}

/** Returns a state whose values have the names of the shape, with `tag`. */
export function namesOf<S>(machine: Machine<S>, tag = ""): Named {
  return new Map([...sortsOf(machine.shape as Shape).keys()].map((name) => [name, name + tag]));
}

/** Returns the sorts of a machine's constants, and of a state with the names of the shape. */
export function declarationsOf<S>(machine: Machine<S>): Map<string, Sort> {
  const constants = machine.constants.map((name) => [name, "Real"] as const);
  return new Map<string, Sort>([...constants, ...sortsOf(machine.shape as Shape)]);
}
