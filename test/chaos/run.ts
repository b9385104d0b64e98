/** The command `npm run chaos`. See `--help`. */
import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { runChaos } from "./chaos.ts";
import { checkHistory } from "./checker.ts";
import { chaosSvg, reportPage, summary } from "./report.ts";

const HELP = `npm run chaos -- [options]

Runs real Redis, worker and leader processes under faults, checks their recorded history, and writes a report with a picture.

  --minutes M    minutes of faults, more than 0, at most 600 (default: 1)
  --seed S       seed of the faults (default: drawn); the processes' own timing is not replayed
  --picture FILE where the picture goes as well, as an SVG without what one sees only by pointing at it
  --out FOLDER   where report and history go (default: a temporary folder)
`;

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "1" },
    seed: { type: "string" },
    picture: { type: "string" },
    out: { type: "string", default: join(tmpdir(), "x-chaos") },
    help: { type: "boolean", default: false },
  },
});

const minutes = Number(values.minutes);
if (!(minutes > 0 && minutes <= 600))
  throw new RangeError(`--minutes must be above 0, at most 600, got ${values.minutes}`);
const seed = values.seed ?? Math.floor(Math.random() * 2 ** 32).toString(36);

async function run(): Promise<boolean> {
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
  const here = process.env["INIT_CWD"] ?? ".";
  const folder = resolve(here, values.out);
  mkdirSync(folder, { recursive: true });
  const report = join(folder, `chaos-${seed}.html`);
  writeFileSync(report, reportPage(`Chaos run ${seed}`, history, verdict));
  writeFileSync(join(folder, `chaos-${seed}.json`), JSON.stringify(history));
  if (values.picture !== undefined) {
    const title = `A chaos run: npm run chaos -- --seed ${seed} --minutes ${minutes}`;
    const svg = chaosSvg(title, history, verdict).replaceAll(/<title>.*?<\/title>/g, "");
    writeFileSync(resolve(here, values.picture), svg);
  }
  process.stdout.write(`${summary(history, verdict)}\nreport: ${report}\n`);
  return verdict.problems.length === 0;
}

if (values.help) process.stdout.write(HELP);
else process.exitCode = (await run()) ? 0 : 1;
