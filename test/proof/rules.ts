/**
 * The formulas of the product, read from its sources, so that the proof is about the formulas that the code computes. A
 * changed formula is proved again, or the proof fails.
 *
 * A rule is a function whose body is one `return` of arithmetic. Its roundings become numbers that are known only by
 * their bounds.
 */
import { readFileSync } from "node:fs";
import { add, and, ge, le, lt, mul, num, sub, type Term } from "./terms.ts";

const FOLDER = new URL("../../packages/redlock-core/src/rules/", import.meta.url);
const FILES = ["validity.ts", "quarantine.ts", "quorum.ts"] as const;

/** Replaces a text that a source contains once. */
export interface RuleChange {
  readonly file: (typeof FILES)[number];
  readonly find: string;
  readonly replace: string;
}

/** A rule as a term. `where` contains the facts about the numbers to which the rule rounds. */
export interface Formula {
  readonly value: Term;
  readonly where: Term;
}

export interface Rules {
  /** `rounded` names the number that the rule rounds to. */
  quorumOf(nodeCount: Term, rounded: Term): Formula;
  validityMs(ttl: Term, drift: Term, rounded: Term): Formula;
  quarantineMs(maxTtl: Term, drift: Term, rounded: Term): Formula;
}

type Expression =
  | { readonly kind: "number"; readonly value: number }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "call"; readonly name: string; readonly args: readonly Expression[] };

export function readRules(change?: RuleChange): Rules {
  const text = FILES.map((file) => sourceOf(file, change)).join("\n");
  const rule =
    (name: string) =>
    (...given: readonly Term[]): Formula =>
      termOf(text, name, given.slice(0, -1), given.at(-1) ?? "");
  return { quorumOf: rule("quorumOf"), validityMs: rule("validityMs"), quarantineMs: rule("quarantineMs") };
}

function sourceOf(file: RuleChange["file"], change: RuleChange | undefined): string {
  const text = readFileSync(new URL(file, FOLDER), "utf8");
  if (change?.file !== file) return text;
  if (text.split(change.find).length !== 2) throw new Error(`${file} must contain ${change.find} once`);
  return text.replace(change.find, change.replace);
}

/** Finds a function or a constant in the sources. */
function definitionOf(text: string, name: string): { readonly params: readonly string[]; expression: Expression } {
  const [, list = "", body] =
    text.match(new RegExp(`function ${name}\\(([^)]*)\\): number \\{\\s*return ([^;]+);\\s*\\}`)) ?? [];
  const expression = body ?? text.match(new RegExp(`const ${name} = ([^;]+);`))?.[1];
  if (expression === undefined) throw new Error(`the sources have no rule ${name} of one expression`);
  const params = list.split(",").map((param) => param.split(":")[0]?.trim() ?? "");
  return { params, expression: parseExpression(expression) };
}

function parseExpression(text: string): Expression {
  const tokens = text.match(/[A-Za-z_][\w.]*|\d[\d_.]*|[-+*/(),]/g) ?? [];
  let at = 0;
  const atom = (): Expression => {
    const token = tokens[at++] ?? "";
    if (/^\d/.test(token)) return { kind: "number", value: Number(token.replaceAll("_", "")) };
    if (token !== "(" && tokens[at] !== "(") return { kind: "name", name: token };
    if (token !== "(") at += 1;
    const args = [sum()];
    while (tokens[at++] === ",") args.push(sum());
    return token === "(" ? (args[0] as Expression) : { kind: "call", name: token, args };
  };
  const chain = (operators: readonly string[], next: () => Expression) => (): Expression => {
    let expression = next();
    while (operators.includes(tokens[at] ?? "")) {
      expression = { kind: "call", name: tokens[at++] ?? "", args: [expression, next()] };
    }
    return expression;
  };
  const sum: () => Expression = chain(["+", "-"], chain(["*", "/"], atom));
  return sum();
}

function termOf(text: string, name: string, given: readonly Term[], rounded: Term): Formula {
  const bounds: Term[] = [];
  const round = (value: Term, isUp: boolean): Term => {
    if (bounds.length > 0) throw new Error(`${name} rounds more than once`);
    bounds.push(
      isUp
        ? and(ge(rounded, value), lt(rounded, add(value, "1")))
        : and(le(rounded, value), lt(value, add(rounded, "1"))),
    );
    return rounded;
  };
  const apply = (rule: string, args: readonly Term[]): Term => {
    const { params, expression } = definitionOf(text, rule);
    return walk(expression, new Map(params.map((param, index) => [param, args[index] ?? ""])));
  };
  const walk = (expression: Expression, names: ReadonlyMap<string, Term>): Term => {
    if (expression.kind === "number") return num(expression.value);
    if (expression.kind === "name") return names.get(expression.name) ?? apply(expression.name, []);
    const args = expression.args.map((each) => walk(each, names));
    const [a = "", b = ""] = args;
    switch (expression.name) {
      case "+":
        return add(a, b);
      case "-":
        return sub(a, b);
      case "*":
        return mul(a, b);
      case "/":
        return `(/ ${a} ${b})`;
      case "Math.ceil":
      case "Math.floor":
        return round(a, expression.name === "Math.ceil");
      default:
        return apply(expression.name, args);
    }
  };
  const value = apply(name, given);
  return { value, where: and(...bounds) };
}
