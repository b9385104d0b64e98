/**
 * A child process that performs measured work. Each driver has its own process, so that no driver pays for the heap or
 * the inline caches of another.
 */
import { type Child, spawnChild } from "@x/test-support";

interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}

const slowestJobMs = 180_000;

/** The parent's side. */
export class JobChild {
  readonly #child: Child;
  #lastId = 0;

  constructor(file: URL, name: string, args: readonly string[]) {
    this.#child = spawnChild(file, { name, args });
  }

  async ask<Result>(job: object, timeoutMs: number = slowestJobMs): Promise<Result> {
    this.#lastId += 1;
    const id = this.#lastId;
    this.#child.send({ ...job, id });
    const answer = await this.#child.message(
      (message): message is Answer => typeof message === "object" && (message as Answer).id === id,
      { timeout: timeoutMs },
    );
    if (answer.error !== undefined) throw new Error(`${this.#child.name}: ${answer.error}`);
    return answer.result as Result;
  }

  async stop(): Promise<void> {
    await this.#child.kill();
  }
}

/** The child's side. `perform` is called for each job, one after the other or concurrently, as the parent asks. */
export function serveJobs(perform: (job: never) => Promise<unknown>): void {
  process.on("message", (message: { readonly id: number }) => {
    const { id } = message;
    perform(message as never).then(
      (result) => process.send?.({ id, result }),
      (error: unknown) =>
        process.send?.({ id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
    );
  });
  process.on("disconnect", () => process.exit());
}
