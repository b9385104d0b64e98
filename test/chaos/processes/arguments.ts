export interface ProcessArguments {
  readonly lockNodes: readonly string[];
  readonly queue: { readonly host: string; readonly port: number };
  readonly maxTtl: number;
}

export const RESOURCES = ["ledger", "stock"] as const;
export const ELECTION = "billing";
export const QUEUE = "payments";

export function processArguments(): ProcessArguments {
  return JSON.parse(process.argv[2] ?? "{}") as ProcessArguments;
}
