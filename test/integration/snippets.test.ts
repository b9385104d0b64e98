import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
// Inside the repository, so that packages resolve; every tool ignores `dist`.
const folder = join(root, "test", "dist", "snippets");
const documents = [
  "README.md",
  "packages/redlock-core/README.md",
  "packages/leader/README.md",
  "packages/workers/README.md",
  "docs/fencing.md",
];

afterAll(() => rmSync(folder, { recursive: true, force: true }));

// A snippet may use what the text around it introduced: unknown names, and values never used, are fine; wrong members, options and types are not.
const forgiven = new Set(["TS2304", "TS2552", "TS7006", "TS7031", "TS18004", "TS2451", "TS6133", "TS2582"]);

function snippetsOf(document: string): string[] {
  const text = readFileSync(join(root, document), "utf8");
  return [...text.matchAll(/^```(?:ts|typescript)\n([^]*?)^```/gm)].map((match) => match[1] ?? "");
}

it("compiles what the READMEs show", { timeout: 120_000 }, () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  let count = 0;
  for (const document of documents.filter((file) => existsSync(join(root, file)))) {
    for (const [index, snippet] of snippetsOf(document).entries()) {
      const name = `${document === "README.md" ? "top" : basename(dirname(document))}-${index + 1}.ts`;
      writeFileSync(join(folder, name), `${snippet}\nexport {};\n`);
      count++;
    }
  }
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({
      extends: "../../../tsconfig.check.json",
      compilerOptions: { noImplicitAny: false, noUnusedLocals: false, noUnusedParameters: false },
      include: ["*.ts"],
      exclude: [],
    }),
  );
  const { stdout } = spawnSync(join(root, "node_modules/.bin/tsc"), ["-p", folder, "--pretty", "false"], {
    encoding: "utf8",
    cwd: folder,
  });
  const errors = stdout.split("\n").filter((line) => {
    const code = /error (TS\d+):/.exec(line)?.[1];
    return code !== undefined && !forgiven.has(code);
  });
  expect(count).toBeGreaterThan(3);
  expect(errors).toEqual([]);
});
