/** Pure: what the options of this package have in common. */
import { abortSignal, type Check, callback, integer, number, Schema, text } from "@x/redlock-core/protocol";

/**
 * The limit is in UTF-16 units. Redis Pub/Sub messages and side keys carry the text; more belongs into a store of its
 * own.
 */
const LONGEST_TEXT = 4_096;

export const name: Check<string> = text({ min: 1, max: LONGEST_TEXT });
export const proclaimedValue: Check<string> = text({ max: LONGEST_TEXT });
export const durationMs: Check<number> = integer({ min: 1 });
export const durationOrNoneMs: Check<number> = integer({ min: 0 });
export const share: Check<number> = number({ min: 0, max: 1 });
export const listener: Check<(...args: never[]) => unknown> = callback();

const SIGNAL = new Schema({ signal: abortSignal.optional() });

export function callerSignal(options: { readonly signal?: AbortSignal | undefined }): AbortSignal | undefined {
  return SIGNAL.resolve(options).signal;
}
