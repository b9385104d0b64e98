/**
 * This entry has what all packages of the repository share and what knows nothing of locks: checks of options, events,
 * signals, clocks, randomness, pauses. It is outside the promises of a version number.
 *
 * An option that is `undefined` counts as left out, and takes the default; null is refused everywhere. Bad input is a
 * `TypeError` (wrong type) or a `RangeError` (wrong value) with name, rule and value, before anything is sent. No
 * message contains what may be a secret.
 */
export { backOffMs } from "./kit/back-off.ts";
export { DAY_MS, type Instant, readClock } from "./kit/clock.ts";
export { Channels, callQuietly, Emitter, type Known, Traced, warn } from "./kit/emitter.ts";
export { InFlight } from "./kit/in-flight.ts";
export { nextOuter, type OuterCall, outerCall, runInside } from "./kit/outer-call.ts";
export { systemRandom } from "./kit/random.ts";
export {
  abortSignal,
  boolean,
  Check,
  callback,
  choice,
  type Fault,
  integer,
  listOf,
  number,
  type Option,
  objectWith,
  shaped,
  text,
  textLike,
} from "./kit/schema/check.ts";
export { type Complete, nearestName, type Resolved, Schema, type ShapeOf } from "./kit/schema/schema.ts";
export { kindOf, quote, show } from "./kit/schema/show.ts";
export {
  abortable,
  type Deferred,
  deferred,
  inTime,
  type LinkedSignal,
  linkSignals,
  onAbort,
  repeat,
  sleep,
  whenAborted,
} from "./kit/signals.ts";
export { asError, messageOf } from "./kit/thrown.ts";
