/** Fencing tokens under all faults together: a register that every holder writes to checks the order of grants. */
import { setTimeout as delay } from "node:timers/promises";
import { spawnChild, until } from "@x/test-support";
import { expect, it } from "vitest";
import { requestsOf, startNodes } from "./support/nodes.ts";

interface Tally {
  readonly grants: number;
  readonly stale: number;
  readonly errors: readonly string[];
}

/** The nightly run asks for 100,000. */
const grants = Number(process.env["TOKEN_GRANTS"] ?? 8_000);
const PATIENCE_MS = 240_000;
const isTally = (message: unknown): message is Tally =>
  typeof message === "object" && message !== null && "grants" in message;

it(`increase strictly over ${grants} grants of 4 processes with wrong clocks, while nodes restart`, async () => {
  const servers = await startNodes(5);
  const register = await startNodes(1);
  const skewsMs = [0, 240_000, -240_000, 60_000];
  const children = skewsMs.map((skewMs, index) =>
    spawnChild(new URL("./children/fencing-tokens.ts", import.meta.url), {
      name: `holder ${index}`,
      args: [String(grants / 4), String(skewMs), register[0]?.path ?? "", ...servers.map((server) => server.path)],
    }),
  );
  let isOver = false;
  /** Every grant is a request to the register. */
  const granted = (): Promise<number> => requestsOf(register[0]);
  const faults = (async () => {
    for (let round = 0; !isOver; round += 1) {
      const server = servers[round % servers.length];
      await server?.kill();
      const before = await granted();
      await until(async () => isOver || (await granted()) > before + 20, PATIENCE_MS);
      await server?.start();
      // Longer than the quarantine of the restarted node, which is a lease of a second.
      await delay(1_600);
    }
  })();
  try {
    const tallies = await Promise.all(children.map((child) => child.message(isTally, { timeout: PATIENCE_MS })));
    expect(tallies.flatMap((tally) => tally.errors)).toEqual([]);
    expect(tallies.map((tally) => tally.stale)).toEqual([0, 0, 0, 0]);
    expect(tallies.reduce((sum, tally) => sum + tally.grants, 0)).toBe(grants);
  } finally {
    isOver = true;
    await faults;
    await Promise.all(children.map((child) => child.kill()));
  }
}, 300_000);
