/** Calls of the user's functions, whose failures must break nothing. */
import { messageOf } from "./thrown.ts";

/** Calls a function of the user. Its error or rejection is passed to `onError`, which by default emits a warning. */
export function callQuietly(call: () => unknown, onError: (error: unknown) => void = (error) => warn(error)): void {
  try {
    const result = call();
    if (result instanceof Promise) result.catch(onError);
  } catch (error) {
    onError(error);
  }
}

/** Emits a warning of the process about a failure that would otherwise remain unnoticed. */
export function warn(error: unknown, code = "X_LISTENER"): void {
  process.emitWarning(error instanceof Error ? error : messageOf(error), { code });
}
