/**
 * A real browser for tests of pages: Debian's chromium, headless. `npm test` installs none, because it has 300 MB.
 */
import type { Browser } from "puppeteer-core";
import { isMissing } from "./missing.ts";
import { onPath } from "./redis-binary.ts";
import { temporaryFolder } from "./watchdog.ts";

const names = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];

/**
 * Returns the browser that `CHROMIUM` names (a path, or a name on the PATH), or else the first browser on the PATH.
 * Undefined if there is none.
 */
export function browserBinary(
  path: string = process.env["PATH"] ?? "",
  chosen: string | undefined = process.env["CHROMIUM"],
): string | undefined {
  const wanted = chosen === undefined || chosen === "" ? names : [chosen];
  return wanted.map((name) => onPath(name, path)).find((file) => file !== undefined);
}

/** Returns whether there is no browser. See `isMissing`. */
export function isWithoutBrowser(untested: string): boolean {
  return isMissing("chromium-headless-shell", browserBinary() !== undefined, untested);
}

/**
 * Starts a browser with an empty profile. Close the browser before the test ends.
 *
 * @throws Error if there is no browser. See `isWithoutBrowser`.
 */
export async function startBrowser(): Promise<Browser> {
  const executablePath = browserBinary();
  if (executablePath === undefined) throw new Error(`no ${names.join(" or ")} on the PATH`);
  // Loading puppeteer takes time, and most tests need no browser.
  const { launch } = await import("puppeteer-core");
  return await launch({
    executablePath,
    headless: true,
    userDataDir: `${temporaryFolder()}/browser-${process.pid}-${browserCount++}`,
    // Tests may run as root, and in containers whose /dev/shm is small. The pages are our own.
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"],
    timeout: 60_000,
    protocolTimeout: 60_000,
  });
}

let browserCount = 0;
