/** Counts the commands that are sent on connections, not the commands that a script calls on the server. */
import { Redis } from "ioredis";

let count = 0;

/** Counts every command of every ioredis client of this process from now on. */
export function countCommands(): void {
  const prototype = Redis.prototype as unknown as { sendCommand: (this: unknown, ...args: unknown[]) => unknown };
  const send = prototype.sendCommand;
  prototype.sendCommand = function counted(this: unknown, ...args: unknown[]): unknown {
    count += 1;
    return send.apply(this, args);
  };
}

export function commandsSent(): number {
  return count;
}
