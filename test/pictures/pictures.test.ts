/** The pictures of the guides show the behavior of the code. Run with `-u` to draw the pictures again. */
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { ATTACKS, type Attack, play } from "../proof/attacks.ts";
import { readRules } from "../proof/rules.ts";
import { Solver } from "../proof/solver.ts";
import { runDirected } from "../simulation/directed.ts";
import { loadEngine } from "../simulation/engine.ts";
import { MUTATIONS } from "../simulation/mutations.ts";
import { timelineSvg as reportSvg } from "../simulation/report/svg.ts";
import { steps, stepsSvg } from "./autoscaling.ts";
import { commandLine } from "./command-line.ts";
import { runTimeline } from "./proof-runs.ts";
import { rotation } from "./rotation.ts";
import { failover, health, loss, quarantined, twoHolders } from "./scenes.ts";
import { terminalSvg } from "./terminal.ts";
import { timelineSvg } from "./timeline.ts";
import { trace } from "./trace.ts";
import { waterfallSvg } from "./waterfall.ts";

const file = (name: string): string => fileURLToPath(new URL(`../../docs/pictures/${name}.svg`, import.meta.url));

it("the picture of the command line shows the output of its commands", async () => {
  const text = await commandLine();
  expect(text).toContain("held by billing-api host-8 95");
  await expect(terminalSvg(text)).toMatchFileSnapshot(file("command-line"));
});

it("the picture of traces shows the spans of the instrumentation", async () => {
  const rows = await trace();
  // A request waits for the lock and acquires it. The work of the request is under the lock.
  expect(rows.map(({ name, depth }) => `${"  ".repeat(depth)}${name}`)).toEqual(
    ["POST /invoices", "POST /refunds"].flatMap((request) => [
      request,
      "  lock using account:*",
      "    lock acquire account:*",
      "    lock hold account:*",
      `    bank: ${request.endsWith("invoices") ? "charge" : "refund"}`,
      "    lock extend account:*",
      "    lock release account:*",
    ]),
  );
  await expect(waterfallSvg("Two requests for one account: the second waits for the lock", rows)).toMatchFileSnapshot(
    file("traces"),
  );
});

it.each([
  ["failover", failover],
  ["losing-a-lock", loss],
  ["health", health],
])("the picture of a %s is current", async (name, play) => {
  await expect(timelineSvg(await play())).toMatchFileSnapshot(file(name));
});

it("the current pictures of one managed Redis show two holders after a failover, but none with quarantine", async () => {
  const lost = await twoHolders();
  expect(lost.bars.map(({ text }) => text)).toContain("believes that it holds");
  expect(lost.marks.map(({ who, text }) => `${who}: ${text}`)).toEqual([
    "store: takes A's write",
    "Redis: failover",
    "store: takes B's write",
    "store: refuses A's",
    "A: signal aborts",
  ]);
  await expect(timelineSvg(lost)).toMatchFileSnapshot(file("managed-failover"));
  const kept = await quarantined();
  expect(kept.bars.map(({ text }) => text)).not.toContain("believes that it holds");
  expect(kept.marks.map(({ who, text }) => `${who}: ${text}`)).toEqual([
    "store: takes A's write",
    "Redis: failover",
    "store: takes A's write",
    "A: signal aborts",
    "store: takes B's write",
  ]);
  await expect(timelineSvg(kept)).toMatchFileSnapshot(file("managed-quarantine"));
});

it("the picture of a rotation shows the order in which a worker starts jobs", async () => {
  const timeline = await rotation();
  const orderOf = (row: string): string =>
    timeline.bars.flatMap(({ who, text }) => (who === row ? [text.slice(0, 1)] : [])).join("");
  expect(orderOf('"arrival"')).toBe("hhhhhhhhhabca");
  expect(orderOf('"rotate"')).toBe("habchahhhhhhh");
  expect(orderOf("hot: weight 3")).toBe("habchhhahhhhh");
  await expect(timelineSvg(timeline)).toMatchFileSnapshot(file("rotation"));
});

it("the picture of autoscaling shows the slots that a queue can use, and its gauges", async () => {
  const found = await steps();
  // The first three jobs of all customers run together. Afterwards jobs of one customer are left.
  const active = [0, 7, 7, 7, ...Array.from({ length: 57 }, () => 1)];
  expect(found.map((step) => step.active)).toEqual(active);
  expect(found.map(({ usable }) => usable)).toEqual([7, ...active.slice(1)]);
  expect(found.map(({ waiting }) => waiting).slice(0, 5)).toEqual([78, 71, 64, 57, 56]);
  await expect(stepsSvg(found)).toMatchFileSnapshot(file("autoscaling"));
});

/** The picture of the report, without the texts under the mouse pointer, which contain tokens. */
const plain = (svg: string): string => `${svg.replaceAll(/<title>.*?<\/title>/g, "")}\n`;

it.each([
  ["slow-clock", "drift margin"],
  ["suspended", "suspends are counted"],
])("the pictures of a simulated run are current, with and without its protection: %s", async (name, protection) => {
  const { directed = "", patches = [] } = MUTATIONS.find((each) => each.protection === protection) ?? {};
  const intact = await runDirected(await loadEngine(), directed);
  expect(intact.violation).toBeUndefined();
  await expect(plain(reportSvg(intact))).toMatchFileSnapshot(file(`${name}-intact`));
  const broken = await runDirected(await loadEngine(patches), directed);
  expect(broken.violation?.invariant).toBe("exclusion");
  await expect(plain(reportSvg(broken))).toMatchFileSnapshot(file(`${name}-broken`));
});

it("the pictures of the proof show runs that the solver finds", async () => {
  await using solver = new Solver();
  const rules = readRules();
  const attackOn = (name: Attack["without"]): Attack => {
    const attack = ATTACKS.find(({ without }) => without === name);
    if (attack === undefined) throw new Error(`no attack on ${name}`);
    return attack;
  };
  const draw = async (name: string, attack: Attack, title: string): Promise<void> => {
    const run = await play(solver, attack, { rules, pauseMs: 300 });
    expect([name, run.answer]).toEqual([name, "sat"]);
    await expect(timelineSvg(runTimeline(title, attack, run))).toMatchFileSnapshot(file(name));
  };
  const loss = attackOn("the quarantine");
  const kept: Attack = { ...loss, without: "a repaired node does not count", breaks: "nothing", after: /B asks/ };
  await draw("proof-protection", kept, "The node has A's key, or casts no vote, until A has stopped believing");
  await draw("proof-quarantine", loss, "Without quarantine: the node has forgotten A's key, and votes for B");
  await draw("proof-release", attackOn("release by token"), "Without comparing tokens: C's release deletes A's key");
});
