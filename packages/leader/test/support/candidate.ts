import { type Child, type ChildOptions, spawnChild } from "@x/test-support";

export interface CandidateArgs {
  readonly paths: readonly string[];
  readonly name: string;
  readonly id: string;
  readonly maxTtl: number;
  readonly leaseDuration: number;
  readonly renewDeadline: number;
  readonly retryPeriod: number;
  readonly quarantine?: boolean;
  readonly workEveryMs?: number;
  /** Whether the task never ends. */
  readonly isStubborn?: boolean;
  readonly worker?: { readonly redlock: string; readonly maxBlock: number };
}

export type CandidateMessage =
  | { readonly type: "ready" }
  | { readonly type: "elected"; readonly term: number; readonly at: number }
  | { readonly type: "ended"; readonly term: number; readonly reason: string; readonly at: number }
  | { readonly type: "renewFailed"; readonly isUnreachable: boolean; readonly code: unknown }
  | { readonly type: "worked"; readonly term: number; readonly at: number }
  | { readonly type: "unblocked"; readonly isCurrent: boolean; readonly at: number }
  | { readonly type: "quarantined"; readonly quarantineLeftMs: number }
  /** The event `error`. `lastError` is the message of the error in `health()`. */
  | { readonly type: "error"; readonly message: string; readonly lastError: string | undefined }
  /** `run()` rejected. */
  | { readonly type: "failed"; readonly code: unknown }
  | { readonly type: "done"; readonly at: number };

export type CandidateOrder =
  | { readonly type: "hangThread" }
  | { readonly type: "closeRedlock" }
  | { readonly type: "block"; readonly ms: number }
  | { readonly type: "stop"; readonly drainTimeout?: number };

type Of<Type extends CandidateMessage["type"]> = CandidateMessage & { readonly type: Type };

/** A candidate process and its messages. */
export class Candidate implements AsyncDisposable {
  readonly child: Child;

  constructor(args: CandidateArgs, options: ChildOptions = {}) {
    const own = { name: args.id, args: [JSON.stringify(args)] };
    this.child = spawnChild(new URL("../children/candidate.ts", import.meta.url), { ...own, ...options });
  }

  all<Type extends CandidateMessage["type"]>(type: Type): readonly Of<Type>[] {
    return this.child.messages.filter((message): message is Of<Type> => (message as CandidateMessage).type === type);
  }

  next<Type extends CandidateMessage["type"]>(type: Type): Promise<Of<Type>> {
    return this.child.message((message): message is Of<Type> => (message as CandidateMessage).type === type);
  }

  order(order: CandidateOrder): void {
    this.child.send({ ...order });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.child[Symbol.asyncDispose]();
  }
}
