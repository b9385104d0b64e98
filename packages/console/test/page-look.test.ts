/**
 * The look of the page in eight states, in a real browser: light and dark, on a desktop and on a telephone.
 * `SCREENSHOTS=1 npx vitest run page-look` takes the pictures of docs/console again.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isWithoutBrowser, startBrowser, temporaryFolder } from "@x/test-support";
import type { AxeResults } from "axe-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { PageState } from "../src/page/state.ts";
import { type PictureServer, servePictures } from "./support/picture-server.ts";
import { allWell, away, haltedKey, openedKey, tenThousandKeys, trouble } from "./support/states.ts";

type Browser = Awaited<ReturnType<typeof startBrowser>>;
type Tab = Awaited<ReturnType<Browser["newPage"]>>;

const takesPictures = process.env["SCREENSHOTS"] === "1";
const pictures = takesPictures ? fileURLToPath(new URL("../../../docs/console", import.meta.url)) : temporaryFolder();

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** WCAG 2.2, levels A and AA, and axe's best practices. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

interface Look {
  readonly state: PageState;
  readonly address: string;
  /** The title of the shown page. */
  readonly title: string;
  readonly size: "desk" | "telephone";
  readonly theme: "light" | "dark";
  /** The name of the picture in the guide, if it has one. */
  readonly picture?: string;
}

const KEY = "#queue=payments&key=account%3A4711";
const HALTED = "#queue=invoices&key=account%3A1001";
const LOOKS: readonly Look[] = [
  { state: allWell(), address: "", title: "All well", size: "desk", theme: "light", picture: "page-all-well" },
  {
    state: trouble(),
    address: "",
    title: "4 things need attention",
    size: "desk",
    theme: "light",
    picture: "page-trouble",
  },
  {
    state: trouble(),
    address: "",
    title: "4 things need attention",
    size: "desk",
    theme: "dark",
    picture: "page-dark",
  },
  {
    state: trouble(),
    address: "",
    title: "4 things need attention",
    size: "telephone",
    theme: "light",
    picture: "page-telephone",
  },
  { state: openedKey(), address: KEY, title: "account:4711", size: "desk", theme: "light", picture: "page-key" },
  {
    state: haltedKey(),
    address: HALTED,
    title: "account:1001",
    size: "telephone",
    theme: "dark",
    picture: "page-telephone-key",
  },
  {
    state: away(),
    address: "",
    title: "Redis has not answered since 14:31:19 (48 s)",
    size: "desk",
    theme: "dark",
    picture: "page-away",
  },
  {
    state: tenThousandKeys(),
    address: "#queue=tenant-sync",
    title: "tenant-sync",
    size: "desk",
    theme: "light",
    picture: "page-10000-keys",
  },
  {
    state: tenThousandKeys(),
    address: "#queue=tenant-sync",
    title: "tenant-sync",
    size: "telephone",
    theme: "light",
  },
];

describe.skipIf(isWithoutBrowser("what the live page looks like"))("what the live page looks like", () => {
  let browser: Browser;
  let server: PictureServer;
  let tab: Tab;
  const faults: string[] = [];
  beforeAll(async () => {
    [browser, server] = await Promise.all([startBrowser(), servePictures(allWell())]);
    tab = await browser.newPage();
    tab.on("pageerror", (error) => faults.push(String(error)));
    tab.on("console", (message) => faults.push(message.text()));
    await tab.emulateTimezone("UTC");
  });
  afterAll(async () => {
    await Promise.all([browser.close(), server.close()]);
  });

  async function show({ state, address, title, size, theme }: Look): Promise<void> {
    const isTelephone = size === "telephone";
    await tab.setViewport({ width: isTelephone ? 390 : 1_280, height: isTelephone ? 844 : 900, isMobile: isTelephone });
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    // A quarter of an hour before the pictures, the nodes answered.
    const { nodes } = state;
    const before = nodes.value?.nodes.map((node) => ({ ...node, error: undefined, quarantineLeftMs: 0 })) ?? [];
    server.show({
      ...allWell(),
      now: state.now - 900_000,
      nodes: { ...nodes, value: nodes.value && { ...nodes.value, nodes: before } },
    });
    await tab.goto("about:blank");
    await tab.goto(server.url + address, { waitUntil: "domcontentloaded" });
    await tab.waitForSelector("footer");
    server.show(state);
    await expect.poll(async () => (await textOf("h1")).replaceAll("\u00a0", " ")).toBe(title);
  }

  const textOf = async (selector: string): Promise<string> =>
    await tab.$eval(selector, (found) => found.textContent ?? "").catch(() => "");

  async function violationsOf(rules: readonly string[]): Promise<readonly (readonly string[])[]> {
    const run = `axe.run(document, { runOnly: ${JSON.stringify(rules)}, resultTypes: ["violations"] })`;
    const { violations } = (await tab.evaluate(run)) as AxeResults;
    return violations.map(({ id, nodes }) => [id, ...nodes.map(({ target }) => target.join(" "))]);
  }

  it.each(LOOKS)("has no fault of accessibility, and nothing sticks out: $title, $size, $theme", async (look) => {
    await show(look);
    expect(await tab.$eval("html", (found) => found.scrollWidth - found.clientWidth)).toBe(0);
    // Four screens of a telephone, even with 25 keys.
    if (look.size === "telephone")
      expect(await tab.$eval("html", (found) => found.scrollHeight)).toBeLessThanOrEqual(3_200);
    await tab.evaluate(axe);
    expect(await violationsOf(RULES)).toEqual([]);
    // In the other theme only the colors differ.
    if (look.theme === "light" && look.size === "desk") {
      await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
      expect(await violationsOf(["color-contrast"])).toEqual([]);
      await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: look.theme }]);
    }
    if (!takesPictures || look.picture === undefined) return;
    mkdirSync(pictures, { recursive: true });
    const path = join(pictures, `${look.picture}.webp`);
    // A telephone shows one screen; a desk shows the whole page, as far as a guide can.
    const height = Math.min(2_000, await tab.$eval("html", (found) => found.scrollHeight));
    if (look.size === "desk") await tab.setViewport({ width: 1_280, height });
    await tab.screenshot({ path, type: "webp", quality: 80 });
  });

  it("says each problem with its severity, its age and its next step", async () => {
    await show({ state: trouble(), address: "", title: "4 things need attention", size: "desk", theme: "light" });
    const problems = await tab.$$eval(".problem", (found) =>
      found.map((each) => each.textContent.replaceAll("\u00a0", " ")),
    );
    expect(problems[0]).toBe(
      "CriticalQueue payments has no worker, and of its jobs 29,865 can run, 31 wait for their key, 9 had started" +
        "Since 14:29:53, for 2 min 14 s. Start a worker of this queue." +
        "npx @x/console keys policy paymentsCopy",
    );
    expect(problems.at(-1)).toBe("SolvedElection billing has no leaderFrom 14:29:53 to 14:29:57, 4.0 s.");
    expect(await tab.title()).toBe("4 need attention · Coordination");
    const billing = await tab.$eval("[data-election=billing]", (found) => found.textContent.replaceAll("\u00a0", " "));
    expect(billing).toContain("4.0 s no leader");
    expect(billing).toContain("billing-2:4187 leads for 2 min 10 s");
  });

  it("folds all but the latest solved problems", async () => {
    const state = trouble();
    const [problem] = state.problems;
    if (problem === undefined) throw new Error("no problem");
    const problems = [1, 2, 3, 4, 5].map((at) => ({ ...problem, id: String(at), solvedAt: state.now - at * 1_000 }));
    await show({ state: { ...state, problems }, address: "", title: "All well", size: "desk", theme: "light" });
    expect(await tab.$$eval("#attention > .problems > li", (found) => found.length)).toBe(3);
    expect((await textOf("#attention summary")).replaceAll("\u00a0", " ")).toBe("2 more solved in the last 5 min");
  });

  it("turns actions off while Redis is away, and says why", async () => {
    await show({ state: trouble(), address: "", title: "4 things need attention", size: "desk", theme: "light" });
    const button = ".problem .btn.main";
    expect(await tab.$eval(button, (found) => found.ariaDisabled)).toBe("false");
    server.show({ ...trouble(), live: away().live });
    await expect
      .poll(() => tab.$eval(button, (found) => `${found.ariaDisabled} ${found.title}`))
      .toBe("true Redis does not answer.");
    await tab.click(button);
    expect(await tab.$("dialog[open]")).toBeNull();
    expect(await textOf("#live")).toMatch(/^Not live/);
    // The known state remains, and the page does not claim that a lease continues.
    expect(await textOf('[data-lock="stock:sku-20981"]')).toContain("not known, was 8.9");
  });

  it("is used with a keyboard alone", async () => {
    await show({ state: allWell(), address: "", title: "All well", size: "desk", theme: "light" });
    const focused = async (): Promise<string> =>
      (await tab.evaluate(
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent",
      )) as string;
    await tab.keyboard.press("Tab");
    expect(await focused()).toBe("Skip to what needs attention");
    await tab.keyboard.press("/");
    expect(await focused()).toBe("Find a queue, key or lock");
    await tab.keyboard.type("pay");
    await tab.waitForSelector(".found");
    expect(await textOf(".found")).toContain("Queues: payments");
    // The links of the search results come next, and Enter opens the queue.
    await tab.focus(".found a");
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("h1")).toBe("payments");
    await tab.goBack();
    await expect.poll(() => textOf("h1")).toBe("All well");
    await tab.focus('button[aria-label="Details of lock stock:sku-20981"]');
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("#dialog-title")).toBe("stock:sku-20981");
    expect(await textOf("dialog")).toContain("Release by force");
    await tab.keyboard.press("Escape");
    await expect.poll(() => tab.$("dialog[open]")).toBeNull();
    await expect.poll(focused).toBe("Details of lock stock:sku-20981");
  });

  it("has no fault of accessibility in the dialogs of a key", async () => {
    await show({ state: openedKey(), address: KEY, title: "account:4711", size: "telephone", theme: "light" });
    for (const [button, title] of [
      ['button[aria-label="Details of job 90418"]', "Job 90418"],
      [".inspect ::-p-text(Set limits)", "Limits of account:4711"],
    ] as const) {
      await tab.waitForSelector(button).then(async (found) => await found?.click());
      await expect.poll(() => textOf("#dialog-title")).toBe(title);
      expect(await tab.$eval("dialog", (found) => found.scrollWidth - found.clientWidth)).toBe(0);
      await tab.evaluate(axe);
      expect(await violationsOf(RULES)).toEqual([]);
      await tab.keyboard.press("Escape");
    }
  });

  it("shows where the jobs of many keys wait, and asks for the keys of a bar", async () => {
    const look = { state: tenThousandKeys(), address: "#queue=tenant-sync", title: "tenant-sync" };
    await show({ ...look, size: "desk", theme: "light" });
    const bar = ".hist button:nth-child(7)";
    const asked: string[] = [];
    const note = (request: { url(): string }): void => void asked.push(request.url());
    tab.on("request", note);
    expect((await textOf(bar)).replaceAll("\u00a0", " ")).toBe("1,185 parked jobs, line of 64+, 13 keys");
    await tab.focus(bar);
    await tab.keyboard.press("Enter");
    await expect.poll(() => asked.some((url) => /[?&]keyGroup=line-64(&|$)/.test(url))).toBe(true);
    expect(await textOf("#keys .note")).toContain("Only keys with 64 or more parked jobs");
    expect(await tab.$eval(bar, (found) => found.ariaPressed)).toBe("true");
    await tab.evaluate(axe);
    expect(await violationsOf(RULES)).toEqual([]);
    await tab.keyboard.press("Enter");
    await expect.poll(() => asked.at(-1)).toMatch(/[?&]keyGroup=(&|$)/);
    tab.off("request", note);
  });

  it("keeps the rows under the focus in their order", async () => {
    const state = allWell();
    await show({ state, address: "", title: "All well", size: "desk", theme: "light" });
    const order = async (): Promise<readonly string[]> =>
      await tab.$$eval("[data-queue]", (rows) => rows.map((row) => row.getAttribute("data-queue") ?? ""));
    const before = await order();
    await tab.focus("[data-queue] a");
    const later = {
      ...state,
      now: state.now + 20_000,
      queues: state.queues.map((queue, at) => ({ ...queue, parked: at * 100_000 })),
    };
    server.show(later);
    await expect.poll(() => textOf("[data-queue=exports]")).toContain("300,000");
    expect(await order()).toEqual(before);
    await tab.evaluate("document.activeElement.blur()");
    server.show({ ...later, now: later.now + 1_000 });
    await expect.poll(order).toEqual(before.toReversed());
  });

  it("shows the first view while the file with the other parts is missing, and those parts once it is there", async () => {
    server.refused.add("details.js");
    await show({ state: allWell(), address: "", title: "All well", size: "desk", theme: "light" });
    await tab.evaluate('location.hash = "#queue=payments"');
    await expect.poll(() => textOf(".empty")).toContain("The page tries again");
    server.refused.clear();
    await expect.poll(() => textOf("h1"), { timeout: 10_000 }).toBe("payments");
    // The browser itself reports the refused file.
    expect(faults.filter((fault) => !fault.startsWith("Failed to load resource"))).toEqual([]);
    faults.length = 0;
  });

  it("has thrown no error, and its policy has refused nothing", () => {
    expect(faults).toEqual([]);
  });
});
