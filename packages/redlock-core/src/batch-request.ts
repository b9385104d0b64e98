/** Pure: the keys and arguments of one request for many operations, as scripts/batch.lua.ts wants them. */
import { nodeKeysOf } from "./keys.ts";
import { digits, type Target } from "./operation.ts";

export const NO_NUMBER: string = digits(0);

/** One of the operations. */
export interface BatchOperation {
  readonly target: Target;
  readonly text: string;
  readonly isAcquisition: boolean;
  readonly isRelease: boolean;
}

export interface BatchSender {
  /** The node alone votes, and numbers the grants. */
  readonly isAlone: boolean;
  readonly isCluster: boolean;
  readonly quarantineMs: number;
  readonly grantTtlMs: number;
  readonly countsReceivers: boolean;
  readonly waiterTtlMs: number;
}

export class BatchRequests {
  readonly #sender: BatchSender;
  readonly #settings: string;

  constructor(sender: BatchSender) {
    this.#sender = sender;
    const { quarantineMs, grantTtlMs, countsReceivers, waiterTtlMs } = sender;
    this.#settings = `${quarantineMs} ${grantTtlMs} ${countsReceivers ? 1 : 0} ${waiterTtlMs}`;
  }

  /** `greatestNumber`: the greatest that the node gave a grant of this client, of 16 digits. */
  of(
    operations: readonly BatchOperation[],
    greatestNumber: string = NO_NUMBER,
  ): { readonly keys: readonly string[]; readonly args: readonly string[] } {
    const { isAlone, isCluster, quarantineMs } = this.#sender;
    const { waiting, hash, lastNumber } = nodeKeysOf(isCluster ? operations[0]?.target.slot : undefined);
    const keys = [waiting];
    const args: string[] = [];
    if (operations.length > 0 && operations.every(({ isRelease }) => isRelease)) {
      args.push(`R${NO_NUMBER}${this.#settings}`);
    } else if (!isAlone) {
      keys.push(hash);
      args.push(`N${NO_NUMBER}${this.#settings}`, ...registersOf(operations));
    } else if (quarantineMs > 0) {
      keys.push(hash, lastNumber);
      args.push(`Q${greatestNumber}${this.#settings}`);
    } else {
      keys.push(lastNumber);
      args.push(`1${greatestNumber}${this.#settings}`);
    }
    for (const { target, text } of operations) {
      for (const key of target.keys) keys.push(key);
      args.push(text);
    }
    return { keys, args };
  }
}

/** How many there are, and those of each acquisition. */
function registersOf(operations: readonly BatchOperation[]): readonly string[] {
  const registers = [""];
  for (const { isAcquisition, target } of operations) {
    if (isAcquisition) for (const register of target.registers ?? []) registers.push(register);
  }
  registers[0] = String(registers.length - 1);
  return registers;
}
