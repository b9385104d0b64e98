/** Rejections of BullMQ without the command that its client has hung on the error: its arguments may be a password. */
import { withoutCommand } from "./errors.ts";

/** Resolves as `ask` does. If `ask` rejects, the error loses its command. */
export async function rejectingPlainly<Value>(ask: () => Promise<Value>): Promise<Value> {
  try {
    return await ask();
  } catch (error) {
    throw withoutCommand(error);
  }
}
