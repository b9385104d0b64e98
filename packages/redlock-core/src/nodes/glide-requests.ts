/**
 * The requests of a node to GLIDE. If more than 50 requests are under way, they overtake each other in GLIDE, so fewer
 * are passed on, and the rest waits in a queue.
 */
import type { Clock } from "../kit/clock.ts";

/** The part of a GLIDE client in use. */
export interface GlideConnection {
  customCommand(args: string[]): Promise<unknown>;
  subscribe(channels: Iterable<string>, timeoutMs: number): Promise<void>;
  unsubscribeLazy(channels: Iterable<string>): Promise<void>;
  close(): void;
}

/** GLIDE has a queue of 50 requests. Requests for which the queue has no room may overtake each other. */
const MAX_IN_GLIDE = 32;

interface PendingCommand {
  readonly client: GlideConnection;
  readonly command: string[];
  readonly sinceMs: number;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

interface GlideRequestsParts {
  readonly clock: Clock;
  /** How long a request may wait before it is passed on, in ms. */
  readonly timeoutMs: number;
  /** Called with the error of a request, after the request was rejected. */
  readonly onFailure: (client: GlideConnection, error: unknown) => void;
}

export class GlideRequests {
  readonly #parts: GlideRequestsParts;
  /** Requests that wait until GLIDE has room, in order. */
  #waiting: PendingCommand[] = [];
  #inGlide = 0;

  constructor(parts: GlideRequestsParts) {
    this.#parts = parts;
  }

  send(client: GlideConnection, command: string[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ client, command, sinceMs: this.#parts.clock.monotonicMs(), resolve, reject });
      this.#sendWaiting();
    });
  }

  /** Rejects the requests that GLIDE has not received. */
  rejectWaiting(reason: () => Error): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { reject } of waiting) reject(reason());
  }

  /**
   * Passes requests to GLIDE up to its limit. Requests that have waited too long are rejected instead of sent, because
   * their callers have given up.
   */
  #sendWaiting(): void {
    const { clock, timeoutMs, onFailure } = this.#parts;
    while (this.#inGlide < MAX_IN_GLIDE) {
      const asked = this.#waiting.shift();
      if (asked === undefined) return;
      const { client, command, sinceMs, resolve, reject } = asked;
      if (clock.monotonicMs() - sinceMs > timeoutMs) {
        reject(new Error("not sent in time: the requests before it were not answered"));
        continue;
      }
      this.#inGlide += 1;
      client.customCommand(command).then(
        (reply) => {
          resolve(reply);
          this.#answered();
        },
        (error: unknown) => {
          reject(serverError(error));
          this.#answered();
          onFailure(client, error);
        },
      );
    }
  }

  #answered(): void {
    this.#inGlide -= 1;
    this.#sendWaiting();
  }
}

/** Codes that GLIDE replaces in a server's error. */
const CODES: Readonly<Record<string, string>> = {
  ResponseError: "ERR",
  NoScriptError: "NOSCRIPT",
  BusyLoadingError: "LOADING",
  ReadOnly: "READONLY",
};

/** Returns an error with the server's original text: its code, a space and the message. */
export function serverError(error: unknown): Error {
  const { name, message } = error as Error;
  if (name !== "RequestError") return error as Error;
  const [, code = "", rest = message] =
    /^(?:An error was signalled by the server: - )?(\w+): (.*)$/s.exec(message) ?? [];
  return new Error(code === "" ? message : `${CODES[code] ?? code} ${rest}`);
}
