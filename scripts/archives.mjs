// Are the packed packages right for whoever installs them? What `publint --strict` and `attw --profile esm-only` say of each archive that
// is named, in one process: TypeScript and its libraries are loaded once.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { getExitCode } from "@arethetypeswrong/cli/internal/getExitCode";
import { typed, untyped } from "@arethetypeswrong/cli/internal/render";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

/** The packages are ESM only. */
const rules = { ignoreResolutions: ["node10", "node16-cjs"], format: "ascii", summary: true, emoji: true };

for (const file of process.argv.slice(2)) {
  process.stdout.write(`\n${basename(file)}\n`);
  const bytes = new Uint8Array(readFileSync(file));
  const { messages, pkg } = await publint({ strict: true, pack: { tarball: bytes.buffer } });
  for (const message of messages) process.stdout.write(`${formatMessage(message, pkg)}\n`);
  const analysis = await checkPackage(createPackageFromTarballData(bytes));
  process.stdout.write(`${analysis.types ? await typed(analysis, rules) : untyped(analysis)}\n`);
  if (messages.some(({ type }) => type === "error") || getExitCode(analysis, rules) > 0) process.exitCode = 1;
}
