import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

const MAX_COLUMNS = 120;
/** A docstring that opens with one of these words says when, where or of what before it says what. */
const PREPOSITIONS = /^(?:As|Between|By|For|In|Of|On|Per|So|Where)(?=[\s,])/;

const packages = new URL("../../packages/", import.meta.url);

const sources = readdirSync(packages)
  .flatMap((name) =>
    readdirSync(new URL(`${name}/src`, packages), { recursive: true, encoding: "utf8" }).map(
      (file) => `${name}/src/${file}`,
    ),
  )
  .filter((file) => file.endsWith(".ts"));

interface Line {
  readonly place: string;
  readonly text: string;
}

/** Returns the block comments of a file, line by line. */
function commentsOf(file: string): readonly (readonly Line[])[] {
  const source = readFileSync(new URL(file, packages), "utf8");
  return [...source.matchAll(/(?<=^\s*)\/\*[^]*?\*\//gm)].map(({ 0: comment, index }) => {
    const indent = index - (source.lastIndexOf("\n", index) + 1);
    const first = source.slice(0, index).split("\n").length;
    return comment.split("\n").map((line, at) => ({
      place: `packages/${file}:${first + at}`,
      text: at === 0 ? " ".repeat(indent) + line : line,
    }));
  });
}

/** Returns a line of a comment without comment signs. A tag begins a sentence, like a dash. */
function proseOf(line: string): string {
  return line
    .replace(/^\s*(?:\/\*\*?|\*(?!\/))\s?/, "")
    .replace(/\s*\*\/\s*$/, "")
    .replace(/^@(\w+)/, "- $1");
}

/**
 * Returns the sentences of a comment. Code, an empty line, an item of a list and the colon before a list end a
 * sentence. A full stop also ends a sentence, unless it belongs to `e.g.` or to a name.
 */
function sentencesOf(comment: readonly Line[]): readonly Line[] {
  const sentences: Line[] = [];
  let [place, open, isCode] = ["", "", false];
  const end = (): void => {
    if (open !== "") sentences.push({ place, text: open });
    open = "";
  };
  for (const line of comment) {
    const prose = proseOf(line.text);
    const isFence = prose.trimStart().startsWith("```");
    if (isFence) isCode = !isCode;
    if (isFence || isCode || prose.trim() === "") {
      end();
      continue;
    }
    if (/^\s*(?:-|\d+\.) /.test(prose)) end();
    for (const piece of prose.trim().split(/(?<=(?<!\be\.g|\bi\.e)[.!?]["')`]?)\s+/)) {
      if (open === "") place = line.place;
      open = open === "" ? piece : `${open} ${piece}`;
      if (/(?<!\be\.g|\bi\.e)[.!?]["')`]?$/.test(piece)) end();
    }
    if (prose.trimEnd().endsWith(":")) end();
  }
  end();
  return sentences;
}

const comments = sources.flatMap(commentsOf);

it("no line of a comment is longer than the formatter's lines", () => {
  const long = comments.flat().filter(({ text }) => text.length > MAX_COLUMNS);
  expect(long.map(({ place, text }) => `${place} (${text.length} columns): ${text}`)).toEqual([]);
});

it("every docstring opens with its subject, not with a preposition", () => {
  const docstrings = comments.filter(([first]) => first?.text.trimStart().startsWith("/**"));
  expect(docstrings.length).toBeGreaterThan(2_000);
  const fragments = docstrings
    .flatMap((docstring) => sentencesOf(docstring).slice(0, 1))
    .filter(({ text }) => PREPOSITIONS.test(text));
  expect(fragments.map(({ place, text }) => `${place} needs a subject first: ${text}`)).toEqual([]);
});
