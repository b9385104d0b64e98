/** Compiles expressions of Lua 5.1 to expressions of JavaScript. */
import type { Expression, Identifier, Statement, TableKey } from "luaparse";
import type { Scopes } from "./scopes.ts";

/** Compiles a function to a JavaScript function that returns the list of its values. */
export type CompileFunction = (
  parameters: readonly (Identifier | { type: "VarargLiteral" })[],
  body: readonly Statement[],
) => string;

const BINARY: Readonly<Record<string, string>> = {
  "+": "add",
  "-": "subtract",
  "*": "multiply",
  "/": "divide",
  "%": "modulo",
  "^": "power",
  "..": "concat",
};

export class Expressions {
  readonly #scopes: Scopes;
  readonly #functionOf: CompileFunction;

  constructor(scopes: Scopes, functionOf: CompileFunction) {
    this.#scopes = scopes;
    this.#functionOf = functionOf;
  }

  /** Returns a list of all values, with the last expression expanded, for `return` and arguments. */
  list(expressions: readonly Expression[]): string {
    return `[${this.spread(expressions)}]`;
  }

  spread(expressions: readonly Expression[]): string {
    return expressions
      .map((expression, index) => {
        const isLast = index === expressions.length - 1;
        return isLast && isMultiple(expression) ? `...${this.multiple(expression)}` : this.expression(expression);
      })
      .join(", ");
  }

  /** Returns a call as an expression for the list of its values. */
  multiple(expression: Expression): string {
    if (expression.type === "CallExpression") {
      const { base } = expression;
      if (base.type === "MemberExpression" && base.indexer === ":") {
        const object = this.expression(base.base);
        const args = this.spread(expression.arguments);
        return `((object) => $.call($.index(object, ${quoted(base.identifier.name)}), object, ${args}))(${object})`;
      }
      const args = this.spread(expression.arguments);
      return `$.call(${this.expression(base)}${args === "" ? "" : `, ${args}`})`;
    }
    if (expression.type === "StringCallExpression") {
      return `$.call(${this.expression(expression.base)}, ${this.expression(expression.argument)})`;
    }
    throw unsupported(expression.type);
  }

  variable(name: string): string {
    return this.#scopes.find(name) ?? `G[${quoted(name)}]`;
  }

  condition(expression: Expression): string {
    return `$.isTrue(${this.expression(expression)})`;
  }

  expression(expression: Expression): string {
    switch (expression.type) {
      case "Identifier":
        return this.variable(expression.name);
      case "StringLiteral":
        return quoted(expression.value);
      case "NumericLiteral":
        return String(expression.value);
      case "BooleanLiteral":
        return String(expression.value);
      case "NilLiteral":
        return "undefined";
      case "CallExpression":
      case "StringCallExpression":
        return `${this.multiple(expression)}[0]`;
      case "IndexExpression":
        return `$.index(${this.expression(expression.base)}, ${this.expression(expression.index)})`;
      case "MemberExpression":
        return `$.index(${this.expression(expression.base)}, ${quoted(expression.identifier.name)})`;
      case "UnaryExpression":
        if (expression.operator === "not") return `(!${this.condition(expression.argument)})`;
        if (expression.operator === "#") return `$.length(${this.expression(expression.argument)})`;
        if (expression.operator === "-") return `$.negate(${this.expression(expression.argument)})`;
        throw unsupported(expression.operator);
      case "BinaryExpression":
        return this.#binary(expression.operator, this.expression(expression.left), this.expression(expression.right));
      case "LogicalExpression": {
        const left = this.#scopes.fresh("left");
        const right = this.expression(expression.right);
        const [yes, no] = expression.operator === "and" ? [right, left] : [left, right];
        return `((${left}) => $.isTrue(${left}) ? ${yes} : ${no})(${this.expression(expression.left)})`;
      }
      case "TableConstructorExpression":
        return this.#table(expression.fields);
      case "FunctionDeclaration":
        return this.#functionOf(expression.parameters, expression.body);
      default:
        throw unsupported(expression.type);
    }
  }

  #binary(operator: string, left: string, right: string): string {
    switch (operator) {
      case "==":
        return `(${left} === ${right})`;
      case "~=":
        return `(${left} !== ${right})`;
      case "<":
        return `$.less(${left}, ${right})`;
      case "<=":
        return `$.lessOrEqual(${left}, ${right})`;
      case ">":
        return `$.less(${right}, ${left})`;
      case ">=":
        return `$.lessOrEqual(${right}, ${left})`;
      default: {
        const name = BINARY[operator];
        if (name === undefined) throw unsupported(operator);
        return `$.${name}(${left}, ${right})`;
      }
    }
  }

  #table(fields: readonly (TableKey | { type: "TableKeyString" | "TableValue" })[]): string {
    const table = this.#scopes.fresh("table");
    const lines: string[] = [];
    let next = 1;
    for (const [index, field] of (fields as readonly TableField[]).entries()) {
      if (field.type === "TableKeyString") {
        lines.push(`${table}.set(${quoted(field.key.name)}, ${this.expression(field.value)});`);
      } else if (field.type === "TableKey") {
        lines.push(`${table}.set(${this.expression(field.key)}, ${this.expression(field.value)});`);
      } else {
        const isLast = index === fields.length - 1;
        if (isLast && isMultiple(field.value)) {
          lines.push(`$.setList(${table}, ${next}, ${this.multiple(field.value)});`);
        } else lines.push(`${table}.set(${next}, ${this.expression(field.value)});`);
        next += 1;
      }
    }
    return `((${table}) => { ${lines.join(" ")} return ${table}; })($.table())`;
  }
}

type TableField =
  | { readonly type: "TableKey"; readonly key: Expression; readonly value: Expression }
  | { readonly type: "TableKeyString"; readonly key: Identifier; readonly value: Expression }
  | { readonly type: "TableValue"; readonly value: Expression };

export function isMultiple(expression: Expression): boolean {
  return expression.type === "CallExpression" || expression.type === "StringCallExpression";
}

export function quoted(text: string): string {
  return JSON.stringify(text);
}

export function unsupported(what: string): Error {
  return new TypeError(`the simulation's Lua has no ${what}`);
}
