/** The calls that tools draw as spans. What is held, extended, lost and released is told by the `Redlock`'s events. */
import { Traced } from "@x/redlock-core/protocol";

/** What the messages of the tracing channels have, by the call: `x.semaphore:acquire` and so on. */
export interface SemaphoreTraces {
  /** An acquisition, also in `using()`; the result is the lock. */
  acquire: { readonly resource: string; readonly permits: number };
}

export const traces: { readonly [Call in keyof SemaphoreTraces]: Traced<SemaphoreTraces[Call]> } = {
  acquire: new Traced("x.semaphore:acquire"),
};
