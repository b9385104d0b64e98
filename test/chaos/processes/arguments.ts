export interface ProcessArguments {
  readonly lockNodes: readonly string[];
  readonly queue: { readonly host: string; readonly port: number };
  readonly maxTtl: number;
}

export const RESOURCES = ["ledger", "stock"] as const;
export const ELECTION = "billing";
/** A queue whose keys have their locks on the lock nodes. */
export const PAYMENTS = "payments";
/** A queue whose keys have their locks on the queue's own Redis, where the queue's scripts acquire and release them. */
export const REFUNDS = "refunds";

export function processArguments(): ProcessArguments {
  return JSON.parse(process.argv[2] ?? "{}") as ProcessArguments;
}
