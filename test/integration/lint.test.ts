import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = new URL("../../", import.meta.url);

function sources(folder: string): string[] {
  return readdirSync(fileURLToPath(new URL(folder, root))).flatMap((name) =>
    readdirSync(fileURLToPath(new URL(`${folder}/${name}/src`, root)), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .map((file) => `${folder}/${name}/src/${file}`),
  );
}

/** In a glob, two stars match any number of folders, and one star a part of a name. */
function matchesGlob(file: string, glob: string): boolean {
  const pattern = glob
    .split(/(\*\*\/|\*)/)
    .map((part) => ({ "**/": "(?:.*/)?", "*": "[^/]*" })[part] ?? part.replaceAll(".", "\\."));
  return new RegExp(`^${pattern.join("")}$`).test(file);
}

interface Override {
  readonly files: readonly string[];
  readonly rules: Readonly<Record<string, unknown>>;
}

it("the linter's list of pure files contains exactly the files that are marked as pure", () => {
  const isPure = (file: string): boolean => /^\/\*\*\s+(\* )?Pure\b/.test(readFileSync(new URL(file, root), "utf8"));
  const pure = [...sources("packages"), ...sources("examples")].filter(isPure);
  const config = JSON.parse(readFileSync(new URL(".oxlintrc.json", root), "utf8")) as { overrides: Override[] };
  const globs = config.overrides.find((override) => "oxc/no-async-await" in override.rules)?.files ?? [];
  const listed = [...sources("packages"), ...sources("examples")].filter((file) =>
    globs.some((glob) => matchesGlob(file, glob)),
  );
  expect(listed.sort()).toEqual(pure.sort());
  expect(globs.filter((glob) => !listed.some((file) => matchesGlob(file, glob)))).toEqual([]);
});
