/**
 * Removes the failed command, whose arguments may contain a password, from the errors with which BullMQ's methods
 * reject.
 */
import { withoutCommand } from "@x/redlock-core/protocol";

/** Resolves like `call`. If `call` rejects, the client's failed command is removed from the error. */
export async function rejectWithoutCommand<Value>(call: () => Promise<Value>): Promise<Value> {
  try {
    return await call();
  } catch (error) {
    throw withoutCommand(error);
  }
}
