/**
 * The run time of compiled Lua chunks: values, tables and the part of the standard library that Redis scripts use.
 *
 * nil is `undefined`. A Lua function is a JavaScript function from a list of values to a list of values. A missing
 * function throws, so a script that begins to use it fails loudly instead of differing from Redis.
 */
import { formatNumber, formatString } from "./rules/format.ts";
import { findPattern, matchPattern } from "./rules/pattern.ts";

export type LuaValue = undefined | boolean | number | string | LuaTable | LuaFunction;
export type LuaFunction = (...args: LuaValue[]) => LuaValue[];

export class LuaError extends Error {
  readonly value: LuaValue;

  constructor(value: LuaValue) {
    super(typeof value === "string" ? value : errorText(value));
    this.value = value;
  }
}

function errorText(value: LuaValue): string {
  const text = value instanceof LuaTable ? value.get("err") : undefined;
  return typeof text === "string" ? text : "Lua error";
}

export class LuaTable {
  readonly #list: LuaValue[];
  #map: Map<LuaValue, LuaValue> | undefined;

  constructor(list: LuaValue[] = []) {
    this.#list = list;
  }

  /** Returns a table with `values` as its list. */
  static of(values: readonly Exclude<LuaValue, undefined>[]): LuaTable {
    return new LuaTable([...values]);
  }

  get length(): number {
    return this.#list.length;
  }

  get(key: LuaValue): LuaValue {
    if (typeof key === "number" && key >= 1 && key <= this.#list.length && Number.isInteger(key)) {
      return this.#list[key - 1];
    }
    return this.#map?.get(key);
  }

  set(key: LuaValue, value: LuaValue): void {
    if (typeof key === "number" && Number.isInteger(key) && key >= 1 && key <= this.#list.length + 1) {
      if (value === undefined) this.#cut(key);
      else if (key <= this.#list.length) this.#list[key - 1] = value;
      else this.#append(value);
      return;
    }
    if (key === undefined) throw new LuaError("table index is nil");
    this.#map ??= new Map();
    if (value === undefined) this.#map.delete(key);
    else this.#map.set(key, value);
  }

  *entries(): IterableIterator<[LuaValue, LuaValue]> {
    for (const [index, value] of this.#list.entries()) yield [index + 1, value];
    if (this.#map !== undefined) yield* this.#map;
  }

  /**
   * Sets an element of the list to nil. The rest of the list moves to the map, so that the list ends at the hole, as
   * for `ipairs` and Redis replies.
   */
  #cut(key: number): void {
    if (key > this.#list.length) return;
    const rest = this.#list.splice(key - 1);
    this.#map ??= new Map();
    for (let index = 1; index < rest.length; index += 1) this.#map.set(key + index, rest[index]);
  }

  #append(value: LuaValue): void {
    this.#list.push(value);
    while (this.#map !== undefined) {
      const next = this.#map.get(this.#list.length + 1);
      if (next === undefined) return;
      this.#map.delete(this.#list.length + 1);
      this.#list.push(next);
    }
  }
}

function isTrue(value: LuaValue): boolean {
  return value !== undefined && value !== false;
}

function typeOf(value: LuaValue): string {
  if (value === undefined) return "nil";
  if (value instanceof LuaTable) return "table";
  return typeof value;
}

function toNumber(value: LuaValue): number | undefined {
  if (typeof value === "number") return value;
  if (typeof value !== "string") return undefined;
  const text = value.trim();
  return /^[+-]?(0[xX][0-9a-fA-F]+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)$/.test(text) ? Number(text) : undefined;
}

function operand(value: LuaValue): number {
  const number = toNumber(value);
  if (number === undefined) throw new LuaError(`attempt to perform arithmetic on a ${typeOf(value)} value`);
  return number;
}

function text(value: LuaValue): string {
  if (typeof value === "string") return value;
  if (typeof value === "number") return formatNumber(value);
  throw new LuaError(`string expected, got ${typeOf(value)}`);
}

function assertComparable(a: LuaValue, b: LuaValue): void {
  if (typeof a === typeof b && (typeof a === "number" || typeof a === "string")) return;
  throw new LuaError(`attempt to compare ${typeOf(a)} with ${typeOf(b)}`);
}

const modulo = (a: number, b: number): number => a - Math.floor(a / b) * b;

/** Operators and accesses for compiled code. */
export const operators = {
  isTrue: (value: LuaValue): boolean => isTrue(value),
  table: (): LuaTable => new LuaTable(),
  add: (a: LuaValue, b: LuaValue): number => operand(a) + operand(b),
  subtract: (a: LuaValue, b: LuaValue): number => operand(a) - operand(b),
  multiply: (a: LuaValue, b: LuaValue): number => operand(a) * operand(b),
  divide: (a: LuaValue, b: LuaValue): number => operand(a) / operand(b),
  modulo: (a: LuaValue, b: LuaValue): number => modulo(operand(a), operand(b)),
  power: (a: LuaValue, b: LuaValue): number => operand(a) ** operand(b),
  negate: (a: LuaValue): number => -operand(a),
  concat: (a: LuaValue, b: LuaValue): string => text(a) + text(b),
  less(a: LuaValue, b: LuaValue): boolean {
    assertComparable(a, b);
    return (a as number) < (b as number);
  },
  lessOrEqual(a: LuaValue, b: LuaValue): boolean {
    assertComparable(a, b);
    return (a as number) <= (b as number);
  },
  length(value: LuaValue): number {
    if (typeof value === "string" || value instanceof LuaTable) return value.length;
    throw new LuaError(`attempt to get length of a ${typeOf(value)} value`);
  },
  index(object: LuaValue, key: LuaValue): LuaValue {
    if (object instanceof LuaTable) return object.get(key);
    if (typeof object === "string") return library.string.get(key);
    throw new LuaError(`attempt to index a ${typeOf(object)} value`);
  },
  setIndex(object: LuaValue, key: LuaValue, value: LuaValue): void {
    if (!(object instanceof LuaTable)) throw new LuaError(`attempt to index a ${typeOf(object)} value`);
    object.set(key, value);
  },
  call(callee: LuaValue, ...args: LuaValue[]): LuaValue[] {
    if (typeof callee !== "function") throw new LuaError(`attempt to call a ${typeOf(callee)} value`);
    return callee(...args);
  },
  setList(table: LuaTable, from: number, values: readonly LuaValue[]): void {
    for (const [index, value] of values.entries()) table.set(from + index, value);
  },
};

function tableOf(members: Record<string, LuaFunction | number>): LuaTable {
  const table = new LuaTable();
  for (const [name, member] of Object.entries(members)) table.set(name, member);
  return table;
}

function byteIndex(position: number, length: number): number {
  return position >= 0 ? position : Math.max(length + position + 1, 0);
}

const math = tableOf({
  max: (...values) => [Math.max(...values.map(operand))],
  min: (...values) => [Math.min(...values.map(operand))],
  floor: (value) => [Math.floor(operand(value))],
  ceil: (value) => [Math.ceil(operand(value))],
  abs: (value) => [Math.abs(operand(value))],
  huge: Number.POSITIVE_INFINITY,
});

const string = tableOf({
  match: (subject, pattern) => matchPattern(text(subject), text(pattern)),
  byte(subject, index) {
    const whole = text(subject);
    const at = byteIndex(index === undefined ? 1 : operand(index), whole.length);
    return at >= 1 && at <= whole.length ? [whole.charCodeAt(at - 1)] : [];
  },
  find(subject, part, from, isPlain) {
    if (from === undefined) {
      const found = findPattern(text(subject), text(part));
      return found === undefined ? [undefined] : [...found];
    }
    if (from !== 1 || isPlain !== true)
      throw new LuaError("string.find: only (subject, part) or (subject, part, 1, true)");
    const at = text(subject).indexOf(text(part));
    return at < 0 ? [undefined] : [at + 1, at + text(part).length];
  },
  format: (template, ...values) => [formatString(text(template), values)],
  sub(subject, from, to) {
    const whole = text(subject);
    const first = Math.max(byteIndex(operand(from), whole.length), 1);
    const last = Math.min(byteIndex(to === undefined ? -1 : operand(to), whole.length), whole.length);
    return [first > last ? "" : whole.slice(first - 1, last)];
  },
  len: (subject) => [text(subject).length],
  lower: (subject) => [text(subject).toLowerCase()],
  upper: (subject) => [text(subject).toUpperCase()],
});

const table = tableOf({
  insert(list, ...rest) {
    if (!(list instanceof LuaTable) || rest.length !== 1) throw new LuaError("table.insert: only (table, value)");
    list.set(list.length + 1, rest[0]);
    return [];
  },
  concat(list, separator) {
    if (!(list instanceof LuaTable)) throw new LuaError("table.concat: table expected");
    const parts: string[] = [];
    for (let index = 1; index <= list.length; index += 1) parts.push(text(list.get(index)));
    return [parts.join(separator === undefined ? "" : text(separator))];
  },
});

function unpack(list: LuaValue, from: LuaValue, to: LuaValue): LuaValue[] {
  if (!(list instanceof LuaTable)) throw new LuaError("unpack: table expected");
  const values: LuaValue[] = [];
  const last = to === undefined ? list.length : operand(to);
  for (let index = from === undefined ? 1 : operand(from); index <= last; index += 1) values.push(list.get(index));
  return values;
}

/** The globals of a script, except KEYS, ARGV and redis. */
export const library: {
  readonly math: LuaTable;
  readonly string: LuaTable;
  readonly table: LuaTable;
  readonly [name: string]: LuaValue;
} = {
  math,
  string,
  table,
  unpack,
  tonumber: (value) => [toNumber(value)],
  tostring: (value) => [typeof value === "boolean" ? String(value) : value === undefined ? "nil" : text(value)],
  type: (value) => [typeOf(value)],
  error(value) {
    throw new LuaError(value);
  },
  pcall(callee, ...args) {
    try {
      return [true, ...operators.call(callee, ...args)];
    } catch (error) {
      if (error instanceof LuaError) return [false, error.value];
      throw error;
    }
  },
  ipairs(list) {
    if (!(list instanceof LuaTable)) throw new LuaError("ipairs: table expected");
    const next: LuaFunction = (_list, index) => {
      const following = operand(index) + 1;
      const value = list.get(following);
      return value === undefined ? [undefined] : [following, value];
    };
    return [next, list, 0];
  },
  pairs(list) {
    if (!(list instanceof LuaTable)) throw new LuaError("pairs: table expected");
    const entries = [...list.entries()];
    let at = 0;
    const next: LuaFunction = () => {
      const entry = entries[at];
      at += 1;
      return entry === undefined ? [undefined] : [...entry];
    };
    return [next, list, undefined];
  },
};
