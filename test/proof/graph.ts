/**
 * Visits every state that a small world can reach, in the order of the number of steps. The first violation therefore
 * has the shortest run. Unlike in explore.ts, the states are values, so each step is taken only once.
 */
import type { Exploration } from "./explore.ts";

export interface Step<State> {
  readonly action: string;
  readonly state: State;
  /** The first broken promise. */
  readonly violation: string | undefined;
  /** Whether the action happens sooner or later without an operator. */
  readonly isCertain: boolean;
}

export interface Graph<State> {
  readonly start: State;
  /** Returns the text of everything that decides which steps are possible next. */
  textOf(state: State): string;
  /** Takes each possible step. */
  stepsOf(state: State): Promise<readonly Step<State>[]>;
  /** Reports whether nothing is left to do. */
  isDone(state: State): boolean;
}

interface Visited {
  /** The state before, and the action that led here. Undefined at the start. */
  readonly from: { readonly index: number; readonly action: string } | undefined;
  /** States from which a certain action leads here. */
  readonly before: number[];
  /** Whether nothing is left to do, or the steps from here are unknown because of the limit. */
  isGood: boolean;
  /** The actions that are possible here, with the indexes of the states to which they lead. */
  steps: readonly string[] | undefined;
}

/** One in this number of states whose text is known is compared with the first state of this text. */
const SAMPLE = 50;

/**
 * Visits the states, up to a limit. Stops at the first violation. A state from which no certain actions lead to a done
 * state is also a violation, unless states beyond the limit could be on the way. Of the states with the same text, a
 * sample must have the same steps.
 */
export async function exploreGraph<State>(
  graph: Graph<State>,
  { limit }: { readonly limit: number },
): Promise<Exploration> {
  const indexes = new Map<string, number>();
  const visited: Visited[] = [];
  let level: (readonly [index: number, state: State])[] = [];
  let nextLevel: typeof level = [];
  const samples: (readonly [index: number, state: State])[] = [];
  let revisits = 0;
  const visit = (state: State, from: Visited["from"]): number => {
    const text = graph.textOf(state);
    const known = indexes.get(text);
    if (known !== undefined) {
      revisits += 1;
      if (revisits % SAMPLE === 0) samples.push([known, state]);
      return known;
    }
    const index = visited.length;
    indexes.set(text, index);
    nextLevel.push([index, state]);
    visited.push({ from, before: [], isGood: true, steps: undefined });
    return index;
  };
  visit(graph.start, undefined);
  while (nextLevel.length > 0 && visited.length < limit) {
    level = nextLevel;
    nextLevel = [];
    for (const [position, [index, state]] of level.entries()) {
      if (visited.length >= limit) {
        nextLevel.push(...level.slice(position));
        break;
      }
      const steps: string[] = [];
      for (const { action, state: next, violation, isCertain } of await graph.stepsOf(state)) {
        if (violation !== undefined) {
          const actions = [...actionsTo(visited, index), action];
          return { states: visited.length, isCut: false, violation: { broken: violation, actions } };
        }
        const reached = visit(next, { index, action });
        steps.push(stepTo(action, reached));
        if (isCertain) visited[reached]?.before.push(index);
      }
      Object.assign(visited[index] as Visited, { isGood: graph.isDone(state), steps });
    }
  }
  const isCut = nextLevel.length > 0;
  for (const [index, state] of samples) {
    const expected = visited[index]?.steps;
    if (expected === undefined) continue;
    const steps = (await graph.stepsOf(state)).map(({ action, state: next }) =>
      stepTo(action, indexes.get(graph.textOf(next))),
    );
    const other = steps.find((step) => !expected.includes(step));
    if (other === undefined && steps.length === expected.length) continue;
    throw new Error(`two states have the same text, and one lacks the step ${other ?? expected.join(", ")}`);
  }
  const stuck = firstStuck(visited);
  if (stuck === undefined) return { states: visited.length, isCut, violation: undefined };
  const violation = { broken: "from here on, some job never ends", actions: actionsTo(visited, stuck) };
  return { states: visited.length, isCut, violation };
}

function stepTo(action: string, index: number | undefined): string {
  return `${action} -> ${index}`;
}

function actionsTo(visited: readonly Visited[], index: number): readonly string[] {
  const from = visited[index]?.from;
  return from === undefined ? [] : [...actionsTo(visited, from.index), from.action];
}

/** Returns the first state from which no certain actions lead to a good state. */
function firstStuck(visited: readonly Visited[]): number | undefined {
  const good = new Set<number>();
  const open = [...visited.keys()].filter((index) => visited[index]?.isGood === true);
  for (let index = open.pop(); index !== undefined; index = open.pop()) {
    if (good.has(index)) continue;
    good.add(index);
    open.push(...(visited[index]?.before ?? []));
  }
  return [...visited.keys()].find((index) => !good.has(index));
}
