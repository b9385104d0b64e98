/**
 * The sibling packages use this symbol to reach what users need not know of a `Redlock` and a `Lock`. It is a
 * registered symbol, so that two copies of this package in one program understand each other.
 */
export const PROTOCOL: unique symbol = Symbol.for("@x/redlock-core/protocol");

/** A `LockProtocol` is what a lock does for the sibling packages. */
export interface LockProtocol {
  /**
   * Releases the lock by a script, where `RedlockProtocol.embedded` is defined. `perform` sends the script and calls
   * `settle` with what `unlockIfUnwanted` returned, or with false if that is not known. Further calls of `settle` do
   * nothing.
   *
   * The lock is released as by `release()` in the following cases, and the call always resolves as that does:
   * - `settle` was called with false, or not within `nodeTimeout`.
   * - A script cannot release the lock: there are several nodes, or an extension may still be on its way.
   */
  releaseBy(perform: (settle: (isDeleted: boolean) => void) => void): Promise<boolean>;
  /**
   * Leaves the lock to its lease, for work that may still go on under it. It is not extended by itself any more and
   * not released by `close()`, so the nodes expire it. `release()` still releases it.
   */
  leave(): void;
}
