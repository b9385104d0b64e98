/** `npm run chaos -- --minutes 2`: a chaos run, its verdict, and a report with a picture. */
import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { runChaos } from "./chaos.ts";
import { checkHistory } from "./checker.ts";
import { reportPage, summary } from "./report.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "1" },
    seed: { type: "string" },
    out: { type: "string", default: join(tmpdir(), "x-chaos") },
  },
});

const minutes = Number(values.minutes);
if (!(minutes > 0 && minutes <= 600)) throw new RangeError(`--minutes must be from 0 to 600, got ${values.minutes}`);
const seed = values.seed ?? Math.floor(Math.random() * 2 ** 32).toString(36);
process.stdout.write(`faults of seed ${seed} for ${minutes} minutes\n`);

const history = await runChaos({
  seed,
  faultyMs: minutes * 60_000,
  onProgress: (text) => {
    if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${text}`);
  },
});
if (process.stderr.isTTY) process.stderr.write("\r\u001b[2K");
const verdict = checkHistory(history);
const folder = resolve(process.env["INIT_CWD"] ?? ".", values.out);
mkdirSync(folder, { recursive: true });
const report = join(folder, `chaos-${seed}.html`);
writeFileSync(report, reportPage(`Chaos run ${seed}`, history, verdict));
writeFileSync(join(folder, `chaos-${seed}.json`), JSON.stringify(history));
process.stdout.write(`${summary(history, verdict)}\nreport: ${report}\n`);
process.exitCode = verdict.problems.length === 0 ? 0 : 1;
