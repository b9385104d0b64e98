/**
 * Pure: the errors of this package. Each class stands for a decision of the caller, with a stable `code` and plain
 * data. A holder that was replaced gets the `FencedOffError` of `@x/redlock-core`.
 */

export type EffectsErrorCode = "OUTCOME_UNKNOWN" | "TRANSACTION_ENDED";

/** The base class of this package's errors. Errors of the database and of the caller's function pass unchanged. */
export abstract class EffectsError extends Error {
  abstract readonly code: EffectsErrorCode;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * COMMIT was sent, the connection was lost, and the server did not answer again. The effect may be done or not.
 *
 * Call `once` again with the same job or key: the call returns the stored result, or does the effect now. `cause` is
 * the client's last error.
 */
export class OutcomeUnknownError extends EffectsError {
  readonly code = "OUTCOME_UNKNOWN" as const;
  /** The inbox ID. Undefined for `transaction()`, which has none. */
  readonly id: string | undefined;

  constructor(facts: { readonly id: string | undefined; readonly attempts: number; readonly cause: unknown }) {
    const what = facts.id === undefined ? "transaction" : `effect ${facts.id}`;
    super(
      `${what}: the connection was lost during COMMIT, and the server did not answer in ${facts.attempts} attempts`,
      { cause: facts.cause },
    );
    this.id = facts.id;
  }
}

/**
 * The caller's function has ended the transaction that it was given, or the adapter began a savepoint instead of a
 * transaction. Statements before a COMMIT of the function's own are committed; everything else is rolled back.
 */
export class TransactionEndedError extends EffectsError {
  readonly code = "TRANSACTION_ENDED" as const;

  constructor() {
    super("fn must leave the transaction open, but has ended it, or it is nested in another transaction");
  }
}
