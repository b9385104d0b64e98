/** The calls around the code that runs now, by its asynchronous context: calls of `using`, and runs of jobs. */
import { AsyncLocalStorage } from "node:async_hooks";

export interface OuterCall {
  /** Whether the routine of the call has ended. Code that the routine did not wait for still runs inside the call. */
  readonly isOver: boolean;
  /** The call around this one. */
  outer: OuterCall | undefined;
}

/** The asynchronous context costs nothing before the first `run`. */
const calls = new AsyncLocalStorage<OuterCall>();

/** Returns the innermost call around the code that runs now, of any package. */
export function outerCall(): OuterCall | undefined {
  return firstOpen(calls.getStore());
}

/** Returns the call around `call`. */
export function nextOuter(call: OuterCall): OuterCall | undefined {
  call.outer = firstOpen(call.outer);
  return call.outer;
}

/** Calls `routine`. Code inside, at any depth, finds `call` as its outer call. */
export function runInside<Argument, Result>(
  call: OuterCall,
  routine: (argument: Argument) => Result,
  argument: Argument,
): Result {
  return calls.run(call, routine, argument);
}

/** Skips calls that have ended. Calls that start each other in a loop therefore leave no chain behind. */
function firstOpen(call: OuterCall | undefined): OuterCall | undefined {
  let open = call;
  while (open !== undefined && open.isOver) open = open.outer;
  return open;
}
