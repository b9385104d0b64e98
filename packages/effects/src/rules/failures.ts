/** Pure: the meaning of an error of a Postgres client. Each client has errors of its own, and ORMs wrap the errors. */
import { plainError } from "@x/redlock-core/protocol";

/** Errors of the server after which the connection is gone, or was refused for a moment. */
const LOST_STATES: ReadonlySet<string> = new Set(["57P01", "57P02", "57P03", "53300"]);

/** Errors of Node and of the clients `postgres` and Prisma. */
const LOST_CODES: ReadonlySet<string> = new Set([
  "ECONNRESET",
  "ECONNREFUSED",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "CONNECTION_CLOSED",
  "CONNECTION_DESTROYED",
  "CONNECT_TIMEOUT",
  "P1001",
  "P1017",
]);

/** Messages of `pg`, which has no codes for these, and of PgBouncer. */
const LOST_MESSAGE =
  /connection terminated|server closed the connection|client has encountered a connection error|not queryable|query read timeout/i;

const CONFLICTS: ReadonlySet<string> = new Set(["40001", "40P01", "P2034"]);

/** Properties in which an error keeps the error that it wraps. */
const WRAPPERS = ["cause", "driverError", "originalError"] as const;
const DEEPEST = 5;

/** Reports whether the connection to the server was lost, or could not be opened. */
export function isConnectionLost(error: unknown): boolean {
  return chainOf(error).some(({ code, message }) => {
    if (typeof code === "string" && code.length > 0) {
      return code.startsWith("08") || LOST_STATES.has(code) || LOST_CODES.has(code);
    }
    return typeof message === "string" && LOST_MESSAGE.test(message);
  });
}

/** Reports whether the server has rolled the transaction back because of a conflict with another transaction. */
export function isConflict(error: unknown): boolean {
  return chainOf(error).some(({ code }) => typeof code === "string" && CONFLICTS.has(code));
}

/** Reports whether the server has ended a session whose transaction was idle for too long. */
export function isIdleEnd(error: unknown): boolean {
  return chainOf(error).some(({ code }) => code === "25P03");
}

/**
 * Returns a plain copy of the error of the database's client, without the statement. An ORM wraps that error in one of
 * its own, whose message may contain the parameters of the statement.
 */
export function plainClientError(error: unknown): Error {
  const errors = chainOf(error).filter((link) => link instanceof Error);
  return plainError(errors.findLast(({ code }) => typeof code === "string") ?? errors.at(-1) ?? error);
}

type ChainedError = Readonly<Record<string, unknown>>;

/** Lists an error and the errors that it wraps. */
function chainOf(error: unknown): readonly ChainedError[] {
  const chain: ChainedError[] = [];
  const add = (given: unknown): void => {
    if (typeof given !== "object" || given === null || chain.length === DEEPEST) return;
    const link = given as ChainedError;
    chain.push(link);
    for (const wrapper of WRAPPERS) add(link[wrapper]);
  };
  add(error);
  return chain;
}
