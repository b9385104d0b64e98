/** The outboxes of `@x/effects`, as their databases count them. */
import type { Clock } from "@x/redlock-core";
import { withoutPasswords } from "../output.ts";
import type { OutboxView } from "./state.ts";
import { Watched } from "./watched.ts";

/** The source of an outbox's figures: an `Effects`. */
export interface OutboxSource {
  backlog(): Promise<{ readonly rows: number; readonly oldestMs: number }>;
}

type Counted = Pick<OutboxView, "rows" | "oldestMs" | "growth">;

export class Outboxes {
  readonly #watching: readonly { readonly name: string; readonly watched: Watched<Counted> }[];

  constructor(clock: Clock, sources: Readonly<Record<string, OutboxSource>>) {
    this.#watching = Object.entries(sources).map(([name, source]) => {
      let before: { readonly rows: number; readonly atMs: number } | undefined;
      const count = async (): Promise<Counted> => {
        const { rows, oldestMs } = await source.backlog();
        const atMs = clock.monotonicMs();
        const growth = before === undefined ? undefined : (rows - before.rows) / ((atMs - before.atMs) / 1_000);
        before = { rows, atMs };
        return { rows, oldestMs, growth };
      };
      return { name, watched: new Watched(clock, count, "no answer from Postgres") };
    });
  }

  get views(): readonly OutboxView[] {
    return this.#watching.map(({ name, watched }) => {
      const { value, error, at } = watched.section;
      const { rows = 0, oldestMs = 0, growth } = value ?? {};
      // The client of the database wrote the message.
      return { name, rows, oldestMs, growth, error: error === undefined ? undefined : withoutPasswords(error), at };
    });
  }

  async look(): Promise<void> {
    await Promise.all(this.#watching.map(({ watched }) => watched.look()));
  }
}
