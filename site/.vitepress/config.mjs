import { existsSync, readdirSync, readFileSync } from "node:fs";
import { defineConfig } from "vitepress";
import { slugOf } from "../links.mjs";
import { entries } from "../reference.mjs";

const sidebar = JSON.parse(readFileSync(new URL("../.content/sidebar.json", import.meta.url), "utf8"));
const reference = Object.keys(entries).map((name) => ({
  text: name,
  link: `/reference/${name}/`,
  collapsed: true,
  items: ["classes", "functions"].flatMap((kind) => membersOf(`${name}/${kind}`)),
}));

export default defineConfig({
  title: "@x",
  description: "Locks, leaders and exclusive BullMQ workers on Redis",
  srcDir: ".content",
  outDir: "dist",
  cacheDir: ".cache",
  // The reference is of the code's present state, and Git knows nothing of gathered pages.
  lastUpdated: false,
  head: [["link", { rel: "icon", href: "data:," }]],
  markdown: {
    anchor: { slugify: slugOf },
    config(markdown) {
      const fence = markdown.renderer.rules.fence;
      markdown.renderer.rules.fence = (tokens, index, ...rest) => {
        const { info, content } = tokens[index];
        if (info.trim() !== "mermaid") return fence(tokens, index, ...rest);
        return `<Diagram code="${encodeURIComponent(content)}" />`;
      };
    },
  },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Guides", link: "/README" },
      { text: "Reference", link: "/reference/redlock-core/" },
      { text: "Benchmarks", link: "/benchmarks/README" },
    ],
    sidebar: [...sidebar, { text: "Reference", collapsed: true, items: reference }],
  },
});

/** Returns the links to the pages of one folder of the reference. */
function membersOf(folder) {
  const pages = new URL(`../.content/reference/${folder}`, import.meta.url);
  if (!existsSync(pages)) return [];
  return readdirSync(pages).map((file) => {
    const text = file.replace(/\.md$/, "");
    return { text, link: `/reference/${folder}/${text}` };
  });
}
