// npm start: the departure boards, from a fresh clone.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ensureBuilt, ensureInstalled, ensureRedis, root } from "./bootstrap.mjs";

const example = join(root, "examples/departure-boards");
// Help needs neither an installation nor a build.
if (process.argv.slice(2).includes("--help")) {
  process.stdout.write(readFileSync(join(example, "usage.txt"), "utf8"));
  process.exit();
}
ensureInstalled();
if (process.env.REDIS_URL === undefined || process.env.LOCK_REDIS_URLS === undefined) ensureRedis();
ensureBuilt();

const main = join(example, "dist/main.js");
const child = spawn(process.execPath, [main, ...process.argv.slice(2)], { stdio: "inherit" });
// Ctrl-C reaches the child through the terminal; it cleans up, and this waits for it. A signal sent to this process alone is passed on.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("exit", (code, signal) => {
  process.exitCode = signal === null ? (code ?? 1) : 128;
});
