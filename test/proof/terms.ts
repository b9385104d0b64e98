/**
 * Terms of SMT-LIB, the language of solvers, as text. `evaluate` computes the same terms with numbers, so that one
 * formula is both proved and compared with what the code did.
 */
export type Term = string;
export type Sort = "Bool" | "Int" | "Real";
export type Value = boolean | number;
export type Tree = string | readonly Tree[];

const TRUE = "true";
const FALSE = "false";

const call =
  (name: string) =>
  (...args: readonly Term[]): Term =>
    `(${name} ${args.join(" ")})`;

export const num = (value: number): Term => (value < 0 ? `(- ${-value})` : String(value));
export const not = (a: Term): Term => (a === TRUE ? FALSE : a === FALSE ? TRUE : `(not ${a})`);
export const eq = (a: Term, b: Term): Term => `(= ${a} ${b})`;
export const lt = (a: Term, b: Term): Term => `(< ${a} ${b})`;
export const le = (a: Term, b: Term): Term => `(<= ${a} ${b})`;
export const gt = (a: Term, b: Term): Term => `(> ${a} ${b})`;
export const ge = (a: Term, b: Term): Term => `(>= ${a} ${b})`;
export const add: (...args: readonly Term[]) => Term = call("+");
export const sub: (...args: readonly Term[]) => Term = call("-");
export const mul: (...args: readonly Term[]) => Term = call("*");

export function and(...args: readonly Term[]): Term {
  const own = args.filter((each) => each !== TRUE);
  if (own.includes(FALSE)) return FALSE;
  return own.length < 2 ? (own[0] ?? TRUE) : call("and")(...own);
}

export function or(...args: readonly Term[]): Term {
  return not(and(...args.map(not)));
}

export function implies(a: Term, b: Term): Term {
  if (a === TRUE) return b;
  return a === FALSE || b === TRUE ? TRUE : `(=> ${a} ${b})`;
}

export function ite(condition: Term, a: Term, b: Term): Term {
  if (condition === TRUE || a === b) return a;
  return condition === FALSE ? b : `(ite ${condition} ${a} ${b})`;
}

export const max = (a: Term, b: Term): Term => ite(ge(a, b), a, b);

/** Returns whether at least `count` of the terms are true. */
export function atLeast(count: Term, terms: readonly Term[]): Term {
  return ge(add("0", ...terms.map((each) => ite(each, "1", "0"))), count);
}

export function parse(text: string): Tree {
  const tokens = text.match(/[()]|[^\s()]+/g) ?? [];
  let at = 0;
  const read = (): Tree => {
    const token = tokens[at++];
    if (token !== "(") return token ?? "";
    const list: Tree[] = [];
    while (at < tokens.length && tokens[at] !== ")") list.push(read());
    at += 1;
    return list;
  };
  return read();
}

type Operation = (...args: readonly number[]) => Value;

const OPERATIONS: Readonly<Record<string, Operation>> = {
  "=": (a, b) => a === b,
  "<": (a = 0, b = 0) => a < b,
  "<=": (a = 0, b = 0) => a <= b,
  ">": (a = 0, b = 0) => a > b,
  ">=": (a = 0, b = 0) => a >= b,
  "+": (...all) => all.reduce((a, b) => a + b, 0),
  "-": (a = 0, ...rest) => (rest.length === 0 ? -a : rest.reduce((sum, each) => sum - each, a)),
  "*": (...all) => all.reduce((a, b) => a * b, 1),
  "/": (a = 0, b = 0) => a / b,
};

/** Computes a term. `values` has the value of each name. */
export function evaluate(tree: Tree, values: ReadonlyMap<string, Value>): Value {
  if (typeof tree === "string") {
    if (tree === TRUE || tree === FALSE) return tree === TRUE;
    const value = values.get(tree) ?? Number(tree);
    if (Number.isNaN(value)) throw new Error(`no value for ${tree}`);
    return value;
  }
  const [name = "", ...args] = tree;
  const valueAt = (index: number): Value => evaluate(args[index] ?? "", values);
  switch (name) {
    case "ite":
      return valueAt(valueAt(0) === true ? 1 : 2);
    case "and":
      return args.every((_, index) => valueAt(index) === true);
    case "=>":
      return valueAt(0) !== true || valueAt(1);
    case "not":
      return valueAt(0) !== true;
  }
  const operation = OPERATIONS[String(name)];
  if (operation === undefined) throw new Error(`no operation ${String(name)}`);
  return operation(...args.map((_, index) => Number(valueAt(index))));
}
