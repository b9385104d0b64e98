import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { browserBinary, isWithoutBrowser, startBrowser, temporaryFolder } from "@x/test-support";
import { describe, expect, it } from "vitest";

it("finds the first browser on the PATH, or the browser that CHROMIUM names", () => {
  const folder = join(temporaryFolder(), "browsers");
  mkdirSync(folder);
  expect(browserBinary(folder, "")).toBeUndefined();
  for (const name of ["google-chrome", "chromium"]) writeFileSync(join(folder, name), "", { mode: 0o755 });
  expect(browserBinary(folder, "")).toBe(join(folder, "chromium"));
  expect(browserBinary(folder, "google-chrome")).toBe(join(folder, "google-chrome"));
  expect(browserBinary("", join(folder, "google-chrome"))).toBe(join(folder, "google-chrome"));
  chmodSync(join(folder, "chromium"), 0o644);
  expect(browserBinary(folder, "chromium")).toBeUndefined();
});

describe.skipIf(isWithoutBrowser("a browser shows a page"))("a browser", () => {
  it("shows a page, and leaves no process behind", async () => {
    const browser = await startBrowser();
    try {
      const page = await browser.newPage();
      await page.setContent("<title>boards</title>");
      expect(await page.title()).toBe("boards");
    } finally {
      await browser.close();
    }
  });
});
