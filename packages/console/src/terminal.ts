/** The input and output of a command. */
import { createInterface } from "node:readline/promises";

export interface Terminal {
  /** Whether a person uses the terminal. Colors, a cleared screen and questions need a person. */
  readonly isInteractive: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Ends watching when the signal aborts. */
  readonly signal: AbortSignal;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
  /** Asks a question. Resolves with true if the answer is yes. */
  readonly confirm: (question: string) => Promise<boolean>;
}

/**
 * Returns the terminal of this process. SIGINT and SIGTERM end watching. A closed output ends watching too, for example
 * with `head`.
 */
export function processTerminal(): Terminal {
  const controller = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => controller.abort());
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
      controller.abort();
    });
  }
  return {
    isInteractive: process.stdin.isTTY && process.stdout.isTTY,
    env: process.env,
    signal: controller.signal,
    write: (text) => void process.stdout.write(text),
    writeError: (text) => void process.stderr.write(text),
    async confirm(question) {
      const lines = createInterface({ input: process.stdin, output: process.stderr });
      try {
        const answer = await lines.question(`${question} [y/N] `, { signal: controller.signal });
        return /^y(es)?$/i.test(answer.trim());
      } finally {
        lines.close();
      }
    },
  };
}
