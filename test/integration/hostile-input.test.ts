/**
 * No regular expression and no Lua pattern of the packages takes more than its share of time for a long text. The test
 * collects all expressions and patterns from the sources. A matcher that backtracks, as JavaScript and Lua do, counts
 * the steps for growing inputs. The inputs repeat samples of the expression's own parts.
 */
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseAst } from "vitest/node";
import { translatePattern } from "../../packages/testing/src/lua/rules/pattern.ts";

/** A part of an expression: `run` continues with `next` after each way to match at `at`. */
interface Part {
  readonly run: (at: number, next: (at: number) => boolean) => boolean;
  /** A short text that the part matches. */
  readonly sample: string;
  readonly parts: readonly Part[];
  readonly isRepeated?: boolean;
}

const MOST_STEPS = 200_000;
const REPEATS = 12;
/** Linear growth from n to 4n takes at most 4 times the steps, quadratic growth up to 16 times. */
const MOST_GROWTH = 6;
const ALPHABET = "a0: {}[]\"'-@./?#,=%\\1xrAeNk_+*^$|()<>!&;\n\t\u0001\u007f\u2003".split("");

class Matcher {
  readonly #source: string;
  readonly #flags: string;
  readonly #isAnchored: boolean;
  #at = 0;
  #text = "";
  #steps = 0;
  readonly root: Part;

  constructor({ source, flags }: RegExp) {
    this.#source = source;
    this.#flags = flags.replaceAll(/[gyd]/g, "");
    this.#isAnchored = source.startsWith("^") && !flags.includes("m") && !source.includes("|");
    this.root = this.#alternatives();
    if (this.#at < source.length) throw new SyntaxError(`not understood: ${source.slice(this.#at)}`);
  }

  /** Counts the steps of all matches in a text. */
  stepsOf(text: string): number {
    this.#text = text;
    this.#steps = 0;
    let end = 0;
    for (let start = 0; start <= (this.#isAnchored ? 0 : text.length); start = end) {
      const isFound = this.root.run(start, (at) => {
        end = at;
        return true;
      });
      end = isFound ? Math.max(end, start + 1) : start + 1;
    }
    return this.#steps > MOST_STEPS ? Infinity : this.#steps;
  }

  #alternatives(): Part {
    const parts = [this.#sequence()];
    while (this.#takes("|")) parts.push(this.#sequence());
    if (parts.length === 1) return parts[0] as Part;
    return { parts, sample: parts[0]?.sample ?? "", run: (at, next) => parts.some((part) => part.run(at, next)) };
  }

  #sequence(): Part {
    const parts: Part[] = [];
    while (this.#at < this.#source.length && !/[|)]/.test(this.#source[this.#at] ?? "")) parts.push(this.#quantified());
    const run = (index: number, at: number, next: (at: number) => boolean): boolean => {
      const part = parts[index];
      return part === undefined ? next(at) : part.run(at, (after) => run(index + 1, after, next));
    };
    return { parts, sample: parts.map((part) => part.sample).join(""), run: (at, next) => run(0, at, next) };
  }

  #quantified(): Part {
    const part = this.#atom();
    const [, sign, least, comma, most] = this.#take(/^(?:([*+?])|\{(\d+)(,?)(\d*)\})/) ?? [];
    if (sign === undefined && least === undefined) return part;
    const isLazy = this.#takes("?");
    const min = sign === undefined ? Number(least) : Number(sign === "+");
    const max = sign === undefined ? (comma === "" ? min : Number(most || Infinity)) : sign === "?" ? 1 : Infinity;
    const run = (count: number, at: number, next: (at: number) => boolean): boolean => {
      const more = (): boolean =>
        count < max && part.run(at, (after) => (after > at || count < min) && run(count + 1, after, next));
      if (count < min) return more();
      return isLazy ? next(at) || more() : more() || next(at);
    };
    const sample = part.sample.repeat(Math.max(1, min));
    return { parts: [part], sample, isRepeated: true, run: (at, next) => run(0, at, next) };
  }

  #atom(): Part {
    const group = this.#take(/^\((?:\?(?::|(<?[=!])|<\w+>))?/);
    if (group !== undefined) {
      const part = this.#alternatives();
      if (!this.#takes(")")) throw new SyntaxError(`no end of a group: ${this.#source}`);
      return group[1] === undefined ? part : this.#lookAround(part, group[1]);
    }
    const anchor = this.#take(/^(?:\^|\$|\\[bB])/)?.[0];
    if (anchor !== undefined) return this.#assertion(new RegExp(anchor, `${this.#flags}y`));
    const set = this.#take(/^(?:\[(?:\\.|[^\]\\])*\]|\\p\{\w+\}|\\u\w{4}|\\x\w\w|\\?.)/s)?.[0] ?? "";
    const expression = new RegExp(`^${set}$`, this.#flags);
    const run: Part["run"] = (at, next) => {
      return this.#isStepLeft() && at < this.#text.length && expression.test(this.#text[at] ?? "") && next(at + 1);
    };
    const own = set.at(-1) ?? "";
    const isLiteral = set !== "." && set.length <= 2 && expression.test(own);
    return { parts: [], sample: isLiteral ? own : (ALPHABET.find((char) => expression.test(char)) ?? ""), run };
  }

  #assertion(expression: RegExp): Part {
    const run: Part["run"] = (at, next) => {
      expression.lastIndex = at;
      return this.#isStepLeft() && expression.test(this.#text) && next(at);
    };
    return { parts: [], sample: "", run };
  }

  /** Supports a look-behind only for a part of one character. */
  #lookAround(part: Part, kind: string): Part {
    const isPositive = kind.endsWith("=");
    const run: Part["run"] = (at, next) => {
      const from = kind.startsWith("<") ? at - 1 : at;
      return (from >= 0 && part.run(from, () => true)) === isPositive && next(at);
    };
    return { parts: [part], sample: isPositive && !kind.startsWith("<") ? part.sample : "", run };
  }

  #isStepLeft(): boolean {
    this.#steps += 1;
    return this.#steps <= MOST_STEPS;
  }

  #take(expression: RegExp): RegExpExecArray | undefined {
    const match = expression.exec(this.#source.slice(this.#at)) ?? undefined;
    this.#at += match?.[0].length ?? 0;
    return match;
  }

  #takes(char: string): boolean {
    if (this.#source[this.#at] !== char) return false;
    this.#at += 1;
    return true;
  }
}

/**
 * Returns the texts to repeat (samples of all parts and of neighboring parts), and the texts before a part that may be
 * repeated.
 */
function samplesOf(root: Part): { readonly pumps: ReadonlySet<string>; readonly prefixes: ReadonlySet<string> } {
  const [pumps, prefixes] = [new Set<string>(), new Set([""])];
  const walk = ({ parts, isRepeated, sample }: Part, before: string): void => {
    if (isRepeated === true) prefixes.add(before);
    pumps.add(sample);
    let so = before;
    for (const [index, part] of parts.entries()) {
      walk(part, so);
      so += part.sample;
      pumps.add(part.sample + (parts[index + 1]?.sample ?? ""));
      pumps.add(parts.slice(index).reduce((text, each) => text + each.sample, ""));
    }
  };
  walk(root, "");
  pumps.delete("");
  return { pumps, prefixes };
}

/** Returns the input for which an expression takes more than its share. Undefined if there is none. */
function hostileInputOf(expression: RegExp): string | undefined {
  const matcher = new Matcher(expression);
  const { pumps, prefixes } = samplesOf(matcher.root);
  for (const prefix of prefixes) {
    for (const pump of pumps) {
      for (const suffix of ["", "\n", "~"]) {
        const stepsFor = (times: number): number => matcher.stepsOf(prefix + pump.repeat(times) + suffix);
        const few = stepsFor(REPEATS);
        const many = stepsFor(4 * REPEATS);
        if (many === Infinity || many > MOST_GROWTH * few) return JSON.stringify([prefix, pump, suffix]);
      }
    }
  }
  return undefined;
}

interface Found {
  readonly place: string;
  readonly text: string;
  /** Undefined if the file computes the expression. */
  readonly expression: RegExp | undefined;
}

const packages = new URL("../../packages/", import.meta.url);
const files = readdirSync(packages).flatMap((name) =>
  readdirSync(new URL(`${name}/src`, packages), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => ({
      file: `${name}/src/${file}`,
      text: readFileSync(new URL(`${name}/src/${file}`, packages), "utf8"),
    })),
);

interface SyntaxNode {
  readonly type?: string;
  readonly regex?: { readonly pattern: string; readonly flags: string };
  readonly callee?: { readonly name?: string };
  readonly start: number;
  readonly end: number;
}

/** Returns the literals of a file, and the calls of `RegExp`. */
function expressionsOf({ file, text }: { readonly file: string; readonly text: string }): readonly Found[] {
  const found: Found[] = [];
  const walk = (node: SyntaxNode): void => {
    const { regex, callee, start, end } = node;
    if (regex !== undefined) {
      const expression = new RegExp(regex.pattern, regex.flags);
      found.push({ place: file, text: String(expression), expression });
    }
    if (callee?.name === "RegExp") found.push({ place: file, text: text.slice(start, end), expression: undefined });
    for (const child of Object.values(node).flat()) {
      if (typeof child === "object" && child !== null) walk(child as SyntaxNode);
    }
  };
  walk(parseAst(text, { lang: "ts" }));
  return found;
}

/** Returns the patterns in the Lua of a file: the arguments of calls, and all texts that begin like a pattern. */
function patternsOf({ file, text }: { readonly file: string; readonly text: string }): readonly Found[] {
  const isLua = file.endsWith(".lua.ts");
  const calls = [...text.matchAll(/(?<![\w.])(string\.)?(?:g?match|gsub|find)\((?=(.*))/g)]
    .filter(([, prefix]) => isLua || prefix !== undefined)
    .map(([call, , rest = ""]) => [call + rest, rest] as const);
  const anchored = isLua ? [...text.matchAll(/'\^[^'\n]*'/g)].map(([each]) => [each, `text, ${each}`] as const) : [];
  return [...calls, ...anchored].flatMap(([call, rest]): Found[] => {
    if (/^(?:[^()]|\([^()]*\))*, (?:1|open \+ 1), true\)/.test(rest)) return [];
    const [, pattern] = /^(?:[^(),']|'[^']*'|\((?:[^()]|\([^()]*\))*\))*?, '([^']*)'/.exec(rest) ?? [];
    const place = { place: file, text: pattern ?? call };
    if (pattern === undefined || pattern.includes("${")) return [{ ...place, expression: undefined }];
    const plain = pattern.replaceAll(/\\+(\d+|n)/g, (_, code) =>
      code === "n" ? "\n" : String.fromCharCode(Number(code)),
    );
    return [{ ...place, expression: new RegExp(translatePattern(plain)) }];
  });
}

const everything = [...files.flatMap(expressionsOf), ...files.flatMap(patternsOf)];
const found = [...new Map(everything.map((each) => [`${each.place} ${each.text}`, each])).values()];

/** Expressions that are created at run time, or that may take more than their share, with the reason. */
const LISTED: Readonly<Record<string, string>> = {
  "testing/src/lua/rules/pattern.ts new RegExp(translatePattern(pattern))": "a pattern of a script, which is here too",
  "redlock-core/src/scripts/batch.lua.ts match(text, operation[2])": "a pattern of the same file, which is here too",
  "redlock-core/src/scripts/waiters.lua.ts string.match(ARGV[last], ${WAITER})": "the same",
  "leader/src/scheduler/scripts/write-history.lua.ts string.match(text, ARGV[1]) or text end":
    "matches a number of lines from the start of the text, each in one way",
  "testing/src/lua/rules/format.ts /\\.?0+$/": "reads a number with 14 digits",
  "workers/src/scripts/operators.lua.ts ^(%d+) ?(%d*)$": "reads a time and a cursor that the script has written",
};

describe("a hostile text", () => {
  it.each([
    [/\}.*:(fence|waiters|note)$/s, "the ends of side keys as they were"],
    [new RegExp(translatePattern("^{(.+)}:(.-:?)register$")), "the keys of schedulers as they were"],
    [/\{([^}]+)\}/, "a part in braces"],
    [/(a+)+$/, "nested repetition"],
    [/\s+$/, "spaces at the end"],
    [/^(a|a)*b/, "equal alternatives"],
  ])("%s is found to take more than its share of time", (expression) => {
    expect(hostileInputOf(expression)).toBeDefined();
  });

  it.each([[/^\{([^}]+)\}/], [/^[^#]*#/], [/\bwhole words\b/i], [/^(\S+) (\d+) (.*)$/s]])(
    "%s is found to take only its share of time",
    (expression) => {
      expect(hostileInputOf(expression)).toBeUndefined();
    },
  );

  it("no expression of the packages takes more than its share of time", () => {
    expect(found.length).toBeGreaterThan(100);
    const faults = found.flatMap(({ place, text, expression }) => {
      if (`${place} ${text}` in LISTED) return [];
      if (expression === undefined) return [`${place} ${text}: made at run time`];
      const input = hostileInputOf(expression);
      return input === undefined ? [] : [`${place} ${text}: ${input}`];
    });
    expect(faults).toEqual([]);
  });

  it("each expression on the list exists in the packages", () => {
    const names = new Set(found.map(({ place, text }) => `${place} ${text}`));
    expect(Object.keys(LISTED).filter((name) => !names.has(name))).toEqual([]);
  });
});
