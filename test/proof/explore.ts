/**
 * Visits every state that a small world can reach. A world is rebuilt from its list of actions, because the state of
 * running code cannot be copied. Two states are the same if their texts are.
 */

export interface World {
  /** Text of everything that decides which actions are possible next. */
  readonly state: string;
  /** The possible actions. The same state always has the same actions, in the same order. */
  readonly actions: readonly string[];
  /** The first broken promise. */
  readonly violation: string | undefined;
  act(action: string): Promise<void>;
}

export interface Exploration {
  readonly states: number;
  /** Whether the limit left states unvisited. */
  readonly isCut: boolean;
  /** The first violation, and the actions that lead to it. */
  readonly violation: { readonly broken: string; readonly actions: readonly string[] } | undefined;
}

/**
 * Visits the states that are reachable after the actions of `after`. Follows a path while it leads to new states, and
 * then replays a prefix. Stops at the first violation.
 */
export async function explore(
  start: () => World,
  { after = [], limit }: { readonly after?: readonly string[]; readonly limit: number },
): Promise<Exploration> {
  const first = start();
  for (const action of after) await first.act(action);
  const visited = new Set<string>([first.state]);
  const open: (readonly string[])[] = first.actions.map((action) => [...after, action]);
  for (let path = open.pop(); path !== undefined && visited.size < limit; path = open.pop()) {
    const world = start();
    for (const action of path.slice(0, -1)) await world.act(action);
    let [walked, next] = [path, path.at(-1)];
    while (next !== undefined) {
      await world.act(next);
      const { violation, state, actions } = world;
      if (violation !== undefined) {
        return { states: visited.size, isCut: false, violation: { broken: violation, actions: walked } };
      }
      if (visited.has(state)) break;
      visited.add(state);
      for (const other of actions.slice(1)) open.push([...walked, other]);
      next = actions[0];
      if (next !== undefined) walked = [...walked, next];
    }
  }
  return { states: visited.size, isCut: open.length > 0, violation: undefined };
}
