/** The pictures of the guides are what the code does: run with `-u` to draw them anew. */
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { failover, loss } from "./scenes.ts";
import { timelineSvg } from "./timeline.ts";

const file = (name: string): string => fileURLToPath(new URL(`../../docs/pictures/${name}.svg`, import.meta.url));

it.each([
  ["failover", failover],
  ["losing-a-lock", loss],
])("the picture of a %s is current", async (name, play) => {
  await expect(timelineSvg(await play())).toMatchFileSnapshot(file(name));
});
