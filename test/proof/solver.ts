/** Asks Z3 questions in SMT-LIB. */
import { fileURLToPath } from "node:url";
import { type Child, spawnChild } from "@x/test-support";
import { parse, type Sort, type Term, type Tree, type Value } from "./terms.ts";

export type Answer = "sat" | "unsat" | "unknown";
export type Declarations = ReadonlyMap<string, Sort>;

export interface Reply {
  readonly answer: Answer;
  /** The values that make all assertions true. Undefined unless they were requested. */
  readonly values: ReadonlyMap<string, Value> | undefined;
}

interface Message {
  readonly id: number;
  readonly answer: string;
  readonly model?: string;
  readonly cpuMs: number;
}

const LONGEST_MS = 120_000;

/** Z3 in a child process. */
export class Solver implements AsyncDisposable {
  /** Called with the text of every question and its answer. */
  onAnswer: ((text: string, answer: Answer) => void) | undefined;
  readonly #child: Child;
  readonly #waiting = new Map<number, (message: Message) => void>();
  #asked = 0;
  #cpuMs = 0;

  constructor() {
    this.#child = spawnChild(fileURLToPath(new URL("z3.mjs", import.meta.url)), {
      onMessage: (message) => {
        const { id, cpuMs } = message as Message;
        this.#cpuMs = cpuMs ?? this.#cpuMs;
        this.#waiting.get(id)?.(message as Message);
      },
    });
    void this.#child.exited.then((exit) => {
      for (const wake of this.#waiting.values())
        wake({ id: 0, answer: `Z3 has ended: ${JSON.stringify(exit)}`, cpuMs: 0 });
    });
  }

  /** The number of questions, and the processor time of the solver. */
  get effort(): { readonly questions: number; readonly cpuMs: number } {
    return { questions: this.#asked, cpuMs: this.#cpuMs };
  }

  /** Asks whether all assertions can be true. */
  async ask(
    declarations: Declarations,
    assertions: readonly Term[],
    {
      wantsValues = false,
      timeoutMs = LONGEST_MS,
    }: { readonly wantsValues?: boolean; readonly timeoutMs?: number } = {},
  ): Promise<Reply> {
    const declared = [...declarations].map(([name, sort]) => `(declare-const ${name} ${sort})`);
    const asserted = assertions.filter((each) => each !== "true").map((each) => `(assert ${each})`);
    const text = [...declared, ...asserted, "(check-sat)", ""].join("\n");
    this.#asked += 1;
    const id = this.#asked;
    const { answer, model } = await new Promise<Message>((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.send({ id, text, timeoutMs, wantsModel: wantsValues });
    });
    this.#waiting.delete(id);
    if (answer !== "sat" && answer !== "unsat" && answer !== "unknown")
      throw new Error(`${answer}\n${this.#child.output}`);
    this.onAnswer?.(text, answer);
    return { answer, values: model === undefined ? undefined : valuesOf(model, declarations) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child.kill();
  }
}

function valuesOf(model: string, declarations: Declarations): ReadonlyMap<string, Value> {
  const values = new Map<string, Value>();
  for (const [name, sort] of declarations) values.set(name, sort === "Bool" ? false : 0);
  for (const line of model.trim().split("\n")) {
    const [name = "", value = ""] = line.split(" -> ");
    values.set(name, valueOf(parse(value)));
  }
  return values;
}

function valueOf(value: Tree): Value {
  if (value === "true" || value === "false") return value === "true";
  if (typeof value === "string") return Number(value.replace("?", ""));
  const [operator, a = "", b] = value;
  const first = Number(valueOf(a));
  return operator === "/" && b !== undefined ? first / Number(valueOf(b)) : -first;
}
