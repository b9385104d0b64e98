/** Reports of the child processes of a chaos run about their holds. */
import { randomUUID } from "node:crypto";
import { machineMs } from "@x/test-support";
import type { Told } from "../history.ts";

export function tell(told: Told): void {
  if (process.connected) process.send?.(told);
}

/** One belief to hold a resource. `isValid` asks the production code. */
export class Holding {
  readonly #hold = randomUUID();
  readonly #resource: string;
  readonly #fencingToken: number;
  readonly #isValid: () => boolean;

  constructor(resource: string, fencingToken: number, isValid: () => boolean) {
    this.#resource = resource;
    this.#fencingToken = fencingToken;
    this.#isValid = isValid;
    this.see("start");
  }

  /**
   * Reports whether the hold is still valid. The time is read first, so a freeze in between makes the interval shorter,
   * never longer.
   */
  see(state: "start" | "seen" | "end" = "seen"): boolean {
    const atMs = machineMs();
    if (!this.#isValid()) return false;
    tell({ type: "held", state, hold: this.#hold, resource: this.#resource, fencingToken: this.#fencingToken, atMs });
    return true;
  }

  /** Writes to the store that the lock protects, deliberately without asking the lock first. */
  write(): void {
    tell({ type: "write", hold: this.#hold, resource: this.#resource, fencingToken: this.#fencingToken });
  }
}

process.on("unhandledRejection", (error) =>
  tell({ type: "trouble", message: `unhandled rejection: ${String(error)}` }),
);
process.on("uncaughtException", (error) => {
  tell({ type: "trouble", message: `uncaught exception: ${error.stack ?? String(error)}` });
});
