/** The pictures of the guides are what the code does: run with `-u` to draw them anew. */
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { runDirected } from "../simulation/directed.ts";
import { loadEngine } from "../simulation/engine.ts";
import { MUTATIONS } from "../simulation/mutations.ts";
import { timelineSvg as reportSvg } from "../simulation/report/svg.ts";
import { failover, loss } from "./scenes.ts";
import { timelineSvg } from "./timeline.ts";

const file = (name: string): string => fileURLToPath(new URL(`../../docs/pictures/${name}.svg`, import.meta.url));

it.each([
  ["failover", failover],
  ["losing-a-lock", loss],
])("the picture of a %s is current", async (name, play) => {
  await expect(timelineSvg(await play())).toMatchFileSnapshot(file(name));
});

/** The report's own picture, without what one sees only by pointing at it, which has tokens in it. */
const plain = (svg: string): string => `${svg.replaceAll(/<title>.*?<\/title>/g, "")}\n`;

it.each([
  ["slow-clock", "drift margin"],
  ["suspended", "suspends are counted"],
])("the pictures of a simulated run are current, with its protection and without: %s", async (name, protection) => {
  const { directed = "", patches = [] } = MUTATIONS.find((each) => each.protection === protection) ?? {};
  const intact = await runDirected(await loadEngine(), directed);
  expect(intact.violation).toBeUndefined();
  await expect(plain(reportSvg(intact))).toMatchFileSnapshot(file(`${name}-intact`));
  const broken = await runDirected(await loadEngine(patches), directed);
  expect(broken.violation?.invariant).toBe("exclusion");
  await expect(plain(reportSvg(broken))).toMatchFileSnapshot(file(`${name}-broken`));
});
