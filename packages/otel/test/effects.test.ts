/** The metrics contain the reports of effects and their relay. A relay in memory sends the reports. */
import { type Database, Effects, OutboxRelay } from "@x/effects";
import { expect, it } from "vitest";
import { startSdk } from "./support/sdk.ts";

/** A database whose inbox is empty, and whose outbox contains waiting rows that the relay cannot read. */
const database: Database = {
  query: (text) => Promise.resolve(text.includes("count(*)") ? [{ rows: "7", ms: "90000" }] : []),
  transaction: (run) => run({ query: () => Promise.resolve([{ ok: 1 }]) }),
};

it("counts calls of once, and shows the backlog while a relay reports it", async () => {
  await using sdk = await startSdk();
  const effects = new Effects(database);
  await effects.once({ key: "a" }, () => 1);
  const election = {
    name: "sole",
    run: (task: (term: never) => Promise<void>, { signal }: { readonly signal: AbortSignal }) =>
      task({ election: "sole", signal, assertCurrent: () => undefined } as never),
  };
  const relay = new OutboxRelay(effects, { election, connection: {} });
  relay.start();
  await expect.poll(async () => (await sdk.scrape()).get("x_effects_outbox_rows"), { timeout: 60_000 }).toBe(7);
  await relay.stop();
  const samples = await sdk.scrape();
  expect(samples.get("x_effects_outbox_oldest")).toBe(90);
  expect(samples.get('x_effects_calls_total{x_effects_outcome="committed"}')).toBe(1);
  expect(samples.get("x_effects_duration_count")).toBe(1);
});
