/**
 * General helpers for the packages of this repository: checks of options, events, signals, clocks, randomness, pauses.
 * They know nothing about locks. Semantic versioning does not cover this entry.
 *
 * An option with the value `undefined` counts as left out, so its default applies; null is always refused. Invalid
 * input causes a `TypeError` (wrong type) or a `RangeError` (wrong value) with name, rule and value before anything is
 * sent. No message contains a possible secret.
 */
export { backOffMs } from "./kit/back-off.ts";
export { DAY_MS, type Instant, readClock } from "./kit/clock.ts";
export { type AllNames, Channels, Emitter, Traced } from "./kit/emitter.ts";
export { InFlight } from "./kit/in-flight.ts";
export { declaredLines, isLogging, type LogLevel, type LogLine, type LogLines } from "./kit/log.ts";
export { nextOuter, type OuterCall, outerCall, runInside } from "./kit/outer-call.ts";
export { callQuietly } from "./kit/quietly.ts";
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
  numberLike,
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
