/**
 * Looks at the built site as a reader does, in a real browser: pages have their heading and side bar, the search
 * finds a page and leads to it, pictures are drawn, what programs read names pages that are there, nothing is asked of another server, and no script fails. Without a browser it says so.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { isWithoutBrowser, startBrowser } from "@x/test-support";

const folder = fileURLToPath(new URL("./dist/", import.meta.url));
const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".webp": "image/webp",
  ".txt": "text/plain",
  ".json": "application/json",
  ".woff2": "font/woff2",
};

if (!isWithoutBrowser("the site in a browser")) await look();

async function look() {
  const server = createServer((request, response) => void answer(request, response));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const browser = await startBrowser();
  try {
    const origin = `http://127.0.0.1:${server.address().port}`;
    const page = await browser.newPage();
    const faults = [];
    page.on("pageerror", (error) => faults.push(`a script failed on ${page.url()}: ${error.message}`));
    page.on("response", (response) => {
      if (response.status() >= 400) faults.push(`${response.status()}: ${response.url()}`);
    });
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(origin) && !url.startsWith("data:") && !url.startsWith("blob:"))
        faults.push(`asked for ${url}`);
    });
    await lookAtTexts(origin);
    await lookAtPages(page, origin);
    await search(page, origin);
    await searchProducts(page, origin);
    await lookAtPicture(page, origin);
    assert.deepEqual(faults, []);
  } finally {
    await browser.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

async function answer({ url }, response) {
  const path = decodeURIComponent(new URL(url, "http://site").pathname).replace(/\/$/, "/index.html");
  const body = await readFile(join(folder, path)).catch(() => undefined);
  response
    .writeHead(body === undefined ? 404 : 200, { "Content-Type": types[extname(path)] ?? "text/plain" })
    .end(body);
}

/** What programs read names every page, and each is there. */
async function lookAtTexts(origin) {
  const list = await (await fetch(`${origin}/llms.txt`)).text();
  const links = [...list.matchAll(/^- \[.+?\]\((\/\S+?)\)/gm)].map(([, link]) => link);
  assert.ok(links.length > 50, `llms.txt has ${links.length} links`);
  for (const link of links) assert.equal((await fetch(origin + link)).status, 200, `llms.txt: ${link}`);
  const whole = await (await fetch(`${origin}/llms-full.txt`)).text();
  assert.ok(whole.includes("# A cron task ran twice"), "llms-full.txt has the guides");
}

/** One page of each kind has its heading, and the side bar. */
async function lookAtPages(page, origin) {
  const reference = ["/reference/redlock-core/", "/reference/redlock-core/classes/Redlock.html"];
  for (const path of ["/problems/cron-ran-twice.html", "/packages/workers.html", ...reference]) {
    await page.goto(origin + path, { waitUntil: "networkidle0" });
    const heading = await page.$eval(".vp-doc h1", (node) => node.textContent);
    assert.ok(heading.length > 3, `${path} has the heading "${heading}"`);
    assert.ok((await page.$$(".VPSidebar a")).length > 50, `${path} has a side bar`);
  }
}

async function search(page, origin) {
  await page.goto(origin, { waitUntil: "networkidle0" });
  await page.keyboard.press("/");
  const input = await page.waitForSelector(".VPLocalSearchBox input");
  for (const text of ["stuck", "ECONNREFUSED", "Ctrl-C", "ElastiCache"]) {
    await input.type(text);
    await page.waitForSelector(".VPLocalSearchBox a.result");
    await page.$eval(".VPLocalSearchBox input", (node) => node.select());
    await page.keyboard.press("Backspace");
    await page.waitForFunction(() => document.querySelector(".VPLocalSearchBox a.result") === null);
  }
  await input.type("quarantine");
  const found = await page.waitForSelector('.VPLocalSearchBox a.result[href*="quarantine"]');
  await found.click();
  await page.waitForFunction(() => document.querySelector(".vp-doc h1")?.textContent?.includes("uarantine"));
}

/** Each product leads to the page that says what works on it. */
async function searchProducts(page, origin) {
  await page.goto(origin, { waitUntil: "networkidle0" });
  await page.keyboard.press("/");
  const input = await page.waitForSelector(".VPLocalSearchBox input");
  const versions = ["Redis 6.2", "Redis 8", "Valkey 7.2", "Valkey 9"];
  const services = [
    "ElastiCache",
    "ElastiCache Serverless",
    "MemoryDB",
    "Memorystore",
    "Azure Managed Redis",
    "Upstash",
  ];
  for (const name of [...versions, ...services, "Aiven", "Dragonfly", "Garnet", "KeyDB", "which redis"]) {
    await input.type(name);
    await page
      .waitForSelector('.VPLocalSearchBox a.result[href*="which-redis"]', { timeout: 10_000 })
      .catch(() => assert.fail(`the search for ${name} does not find the page "Which Redis"`));
    await page.$eval(".VPLocalSearchBox input", (node) => node.select());
    await page.keyboard.press("Backspace");
    await page.waitForFunction(() => document.querySelector(".VPLocalSearchBox a.result") === null);
  }
}

async function lookAtPicture(page, origin) {
  await page.goto(`${origin}/locks/losing-a-lock.html`, { waitUntil: "networkidle0" });
  const widths = await page.$$eval(".vp-doc img", (images) => images.map((image) => image.naturalWidth));
  assert.ok(widths.length > 0 && widths.every((width) => width > 0), `pictures are ${widths} wide`);
}
