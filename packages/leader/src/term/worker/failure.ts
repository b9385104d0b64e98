/**
 * Errors on their way from the renewal thread. A message keeps the text of an error and its cause, not its class and
 * its fields.
 */
import {
  FencedOffError,
  LockHeldError,
  LockLostError,
  QuorumUnreachableError,
  RedlockClosedError,
  type RedlockErrorCode,
  ReentrancyError,
} from "@x/redlock-core";
import { asError } from "@x/redlock-core/protocol";

export interface Failure {
  readonly error: Error;
  /** The code is undefined if the error is none of redlock-core. */
  readonly code: RedlockErrorCode | undefined;
  /** The other fields of the error, which are plain data. */
  readonly facts: object;
}

const KINDS: Readonly<Record<RedlockErrorCode, { readonly prototype: Error }>> = {
  QUORUM_UNREACHABLE: QuorumUnreachableError,
  NO_LUA: QuorumUnreachableError,
  REDLOCK_CLOSED: RedlockClosedError,
  LOCK_LOST: LockLostError,
  LOCK_HELD: LockHeldError,
  FENCED_OFF: FencedOffError,
  REENTRANCY: ReentrancyError,
};

/** Knows an error by its code, because the thread's module may have a copy of redlock-core of its own. */
export function failureOf(thrown: unknown): Failure {
  const error: Error & { readonly code?: unknown } = asError(thrown);
  const code = (Object.keys(KINDS) as RedlockErrorCode[]).find((known) => known === error.code);
  return { error, code, facts: code === undefined ? {} : Object.assign({}, error) };
}

/** Returns the error that was thrown, of its own class. */
export function errorOf({ error, code, facts }: Failure): Error {
  if (code === undefined) return error;
  Object.setPrototypeOf(error, KINDS[code].prototype);
  return Object.assign(error, facts);
}
