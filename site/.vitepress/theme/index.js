import { withBase } from "vitepress";
import DefaultTheme from "vitepress/theme";
import { defineComponent, h, onMounted, ref } from "vue";
import "./look.css";

let loading;

/** Mermaid comes with the first diagram that somebody looks at. */
function loadMermaid() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = withBase("/mermaid.js");
    script.addEventListener("load", () => resolve(globalThis.mermaid));
    script.addEventListener("error", () => reject(new Error("mermaid.js cannot be loaded")));
    document.head.append(script);
  });
  return loading;
}

let count = 0;

const Diagram = defineComponent({
  props: { code: { type: String, required: true } },
  setup({ code }) {
    const text = decodeURIComponent(code);
    const picture = ref("");
    onMounted(async () => {
      const mermaid = await loadMermaid();
      const theme = document.documentElement.classList.contains("dark") ? "dark" : "neutral";
      // Measured and shown in one font, or notes are cut off.
      mermaid.initialize({ startOnLoad: false, theme, fontFamily: "sans-serif", sequence: { noteMargin: 16 } });
      count += 1;
      picture.value = (await mermaid.render(`diagram-${count}`, text)).svg;
    });
    // Without JavaScript the text says the same.
    return () => (picture.value === "" ? h("pre", text) : h("div", { class: "diagram", innerHTML: picture.value }));
  },
});

export default {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component("Diagram", Diagram);
  },
};
