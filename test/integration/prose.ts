/**
 * Measures the English of comments and guides. A sentence that points ("It …", "those of the others") has to be read
 * twice; a sentence that names its subject does not.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

export interface Figures {
  /** Percentage of sentences that begin with a pointing word. */
  readonly openers: number;
  /** Pointing words per 100 words. */
  readonly pointers: number;
  /** Phrases that read as translated, per 100 sentences. */
  readonly phrases: number;
}

interface Sentence {
  /** File and line of the paragraph that contains the sentence. */
  readonly place: string;
  readonly text: string;
  readonly words: readonly string[];
}

interface Paragraph {
  readonly line: number;
  readonly text: string;
}

const VERBS =
  "is|are|was|were|be|has|have|had|does|do|did|can|cannot|may|might|must|will|would|should|means|makes|keeps|costs|" +
  "needs|says|tells|holds|goes|comes|takes|gives|happens|works|applies|also|only";

const OPENER = new RegExp(
  "^(?:(?:it|its|they|them|their|he|she|who|whoever|whose|what|whatever|which|one|ones|so|such|there|here|others|" +
    "another|none|nobody|somebody|everybody|otherwise|neither|either)\\b|" +
    `(?:this|that|these|those)\\s+(?:${VERBS})\\b|those\\b|that\\b)`,
  "i",
);

const ALWAYS_POINTS =
  /^(?:it|its|they|them|their|theirs|those|ones|what|whatever|who|whom|whoever|there|here|others|either|neither|none|nobody|somebody|everybody)$/i;

/** Points unless a noun follows: "this lock" and "another process" name something. */
const POINTS_ALONE = /^(?:this|these|that|one|other|another|such|same)$/i;

const NOT_A_NOUN = new RegExp(
  "^(?:of|which|who|whose|to|in|on|by|at|for|from|before|after|behind|and|or|with|as|than|if|when|while|until|unless|" +
    `because|so|too|that|${VERBS})$`,
  "i",
);

/** Words before a "that" that points. After any other word "that" is a relative pronoun or a conjunction. */
const BEFORE_THAT =
  /^(?:of|in|to|for|with|by|on|at|from|than|as|like|behind|before|after|beside|besides|without|about|under|over|through|between|and|or|but|is|are|was|were)$/i;

/** Phrases that read as translated, with plainer words. */
const TRANSLATED: readonly (readonly [pattern: RegExp, instead: string])[] = [
  [/(?<!\bthere )\b(?:is|are|was|were|be) no (?!longer|more|less|fewer|later|earlier)\w/i, "is not a …"],
  [/\bas (?:many|much|long|often) as (?:may|can|are|there)\b/i, "up to the limit, all …"],
  [/\bfor ever\b/i, "forever"],
  [/\balso (?:of|if|by|from|to|for|when|where|in|on|those|that|what|who)\b/i, "even …, including …"],
  [/\btells? of\b|\btold of\b/i, "reports"],
  [/\bwhoever\b|\bwhatever\b/i, "the process that …, any …"],
  [/\b(?:that|those) of\b/i, "repeat the noun"],
  [/\bthe one (?:of|that|which|before|behind|in)\b/i, "repeat the noun"],
  [/\bof (?:those|them)\b|\bof these(?! \w)/i, "repeat the noun"],
  [/\bin (?:its|their) place\b|\bin place of\b/i, "instead of"],
  [/\bbeside\b/i, "next to, in addition to"],
  [/\blies?\b (?:in|on|at|between)/i, "is in"],
  [/\bstands? (?:in|at|on|beside|there|behind|before)\b/i, "is in"],
  [/, too[.,;:]?$/i, "also, before the verb"],
  [/\bonly then\b|\bnot before\b/i, "not until, only after"],
];

/** Returns the sentences of a file, or of all sources and guides of a folder. */
export function sentencesOf(path: string): readonly Sentence[] {
  return filesOf(path).flatMap((file) =>
    paragraphsOf(file, readFileSync(file, "utf8")).flatMap(({ line, text }) =>
      withoutMarkup(text)
        .split(/(?<=[.!?])\s+(?=[A-Z"'(X])/)
        .map((sentence) => ({
          place: `${file}:${line}`,
          text: sentence,
          words: sentence.match(/[A-Za-z][A-Za-z'’-]*/g) ?? [],
        }))
        .filter(({ words }) => words.length >= 4),
    ),
  );
}

export function figuresOf(sentences: readonly Sentence[]): Figures {
  const sum = (count: (sentence: Sentence) => number): number =>
    sentences.reduce((total, sentence) => total + count(sentence), 0);
  return {
    openers: (100 * sum(({ text }) => Number(OPENER.test(text)))) / sentences.length,
    pointers: (100 * sum(pointersIn)) / sum(({ words }) => words.length),
    phrases: (100 * sum(({ text }) => phrasesIn(text).length)) / sentences.length,
  };
}

/** Returns up to `count` sentences to rewrite, the worst first, each with its place and plainer words. */
export function worstOf(sentences: readonly Sentence[], count: number): readonly string[] {
  return sentences
    .map((sentence) => {
      const hints = phrasesIn(sentence.text);
      const points = Math.max(0, pointersIn(sentence) - sentence.words.length / 20);
      return { sentence, hints, score: 2 * Number(OPENER.test(sentence.text)) + 2 * hints.length + points };
    })
    .filter(({ score }) => score >= 2)
    .toSorted((one, other) => other.score - one.score)
    .slice(0, count)
    .map(({ sentence: { place, text }, hints }) => [`${place} ${text}`, ...hints].join(" -> "));
}

function pointersIn({ words }: Sentence): number {
  return words.filter((word, at) => {
    if (ALWAYS_POINTS.test(word)) return true;
    const next = words[at + 1];
    if (!POINTS_ALONE.test(word) || (next !== undefined && !NOT_A_NOUN.test(next))) return false;
    return !/^that$/i.test(word) || at === 0 || BEFORE_THAT.test(words[at - 1] ?? "");
  }).length;
}

function phrasesIn(text: string): readonly string[] {
  return TRANSLATED.filter(([pattern]) => pattern.test(text)).map(([, instead]) => instead);
}

/** Files of packages, built files, and texts that a program writes or that list changes. */
const NOT_PROSE = /(?:^|\/)(?:(?:node_modules|dist)\/|benchmarks\/.*\.md$|CHANGELOG\.md$)/;

function filesOf(path: string): readonly string[] {
  if (statSync(path).isFile()) return [path];
  const names = readdirSync(path, { recursive: true, encoding: "utf8" }).toSorted();
  return names.filter((name) => /\.(?:ts|md)$/.test(name) && !NOT_PROSE.test(name)).map((name) => join(path, name));
}

function paragraphsOf(file: string, text: string): readonly Paragraph[] {
  return file.endsWith(".md") ? paragraphsOfPage(text) : [...blockComments(text), ...lineComments(text)];
}

function paragraphsOfPage(text: string): readonly Paragraph[] {
  const blank = (block: string): string => block.replaceAll(/[^\n]/g, " ");
  const prose = text.replace(/^---\n[^]*?\n---\n/, blank).replaceAll(/```[^]*?```/g, blank);
  let line = 1;
  return prose.split(/(\n\s*\n|\n(?=\s*(?:[-*#|>]|\d+\.)\s))/).flatMap((block, at) => {
    const first = line;
    line += block.split("\n").length - 1;
    if (at % 2 === 1 || /^\s*(?:#|\||\[[^\]]+\]:|<)/.test(block)) return [];
    return [{ line: first, text: block.replace(/^\s*(?:[-*>]|\d+\.)\s+/, "") }];
  });
}

function blockComments(source: string): readonly Paragraph[] {
  return [...source.matchAll(/\/\*\*?([^]*?)\*\//g)].flatMap(({ 1: comment = "", index }) =>
    comment
      .replaceAll(/^\s*\* ?/gm, "")
      .split(/\n\s*\n|\n(?=\s*(?:[-*]|@\w+)\s?)/)
      .map((part) => ({
        line: lineAt(source, index),
        text: part.replace(/^\s*[-*]\s+/, "").replace(/^@\w+\s*/, ""),
      })),
  );
}

/** Returns the runs of line comments of TypeScript and Lua, except notes to the linter. */
function lineComments(source: string): readonly Paragraph[] {
  return [...source.matchAll(/(?:^[ \t]*(?:\/\/|--(?!\[\[))[^\n]*\n)+/gm)]
    .filter(([comment]) => !/oxlint|biome|@ts-/.test(comment))
    .map(({ 0: comment, index }) => ({
      line: lineAt(source, index),
      text: comment.replaceAll(/^\s*(?:\/\/|--)\s?/gm, "").replaceAll("\n", " "),
    }));
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split("\n").length;
}

/** Replaces code by a name, and keeps only the text of links. */
function withoutMarkup(text: string): string {
  return text
    .replaceAll(/`[^`]*`/g, "X")
    .replaceAll(/\[([^\]]*)\]\([^)]*\)|\[([^\]]*)\]\[[^\]]*\]/g, "$1$2")
    .replaceAll(/https?:\S+/g, "")
    .replaceAll(/\{@\w+ ([^}]*)\}/g, "$1")
    .replaceAll(/\s+/g, " ")
    .trim();
}
