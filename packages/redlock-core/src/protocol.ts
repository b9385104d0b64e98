/**
 * What the sibling packages share with this one. Documented, but outside the promises of a version number: it changes with them.
 *
 * Options: `undefined` means "left out", and takes the default; null is refused everywhere. What is refused is a `TypeError` (wrong type) or
 * `RangeError` (wrong value) with name, rule and value, before anything is sent. No message has what may be a secret.
 */
export { plainError } from "./node.ts";
export {
  abortSignal,
  boolean,
  Check,
  type CheckParts,
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
} from "./schema/check.ts";
export { nearestName } from "./schema/nearest-name.ts";
export { type Resolved, Schema, type ShapeOf } from "./schema/schema.ts";
export { kindOf, quote, show } from "./schema/show.ts";
