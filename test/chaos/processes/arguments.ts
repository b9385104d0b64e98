export interface ProcessArguments {
  readonly lockNodes: readonly string[];
  readonly queue: { readonly host: string; readonly port: number };
  readonly maxTtl: number;
}

export const RESOURCES = ["ledger", "stock"] as const;
export const ELECTION = "billing";
/** The locks of their keys are on the lock nodes. */
export const PAYMENTS = "payments";
/** The locks of their keys are on the queue's own Redis, where the queue's scripts take and release them. */
export const REFUNDS = "refunds";

export function processArguments(): ProcessArguments {
  return JSON.parse(process.argv[2] ?? "{}") as ProcessArguments;
}
