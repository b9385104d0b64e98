import type { LockNode, NodeScript, NodeState } from "../../src/index.ts";

/** A node that records its operations, and replies with the test's `answer`; without one it never replies. */
export class StubNode implements LockNode {
  readonly name = "stub";
  state: NodeState;
  /** The operations of each request, as operation.ts writes them. */
  readonly requests: (readonly string[])[] = [];
  answer: (operations: readonly string[]) => Promise<unknown> = () => new Promise(() => undefined);
  readonly #listeners = new Set<() => void>();

  constructor(state: NodeState = "ready") {
    this.state = state;
  }

  /** All operations so far, over all requests. */
  get operations(): readonly string[] {
    return this.requests.flat();
  }

  eval(_script: NodeScript, _keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const operations = args.slice(args[0]?.startsWith("N") === true ? 2 + Number(args[1]) : 1);
    this.requests.push(operations);
    return this.answer(operations);
  }

  /** Changes the state, and notifies the listeners. */
  become(state: NodeState): void {
    this.state = state;
    for (const listener of this.#listeners) listener();
  }

  onStateChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** A node's answer to a request whose operations all succeeded. */
export function granted(operations: readonly string[]): readonly unknown[] {
  return ["1000000", 0, ...operations.map(() => 1)];
}
