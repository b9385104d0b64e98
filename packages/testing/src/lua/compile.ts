/**
 * Compiles Lua 5.1 to JavaScript, so that the nodes of the simulation run the scripts of production, not a copy.
 *
 * Compiled code runs a batch in microseconds and a whole schedule in milliseconds, which an interpreter of the syntax
 * tree would not. Syntax that the scripts do not use (goto, varargs, method definitions) throws at compile time.
 */
import { compileFunction } from "node:vm";
import { type Chunk, type Expression, type Identifier, parse, type Statement, type TableKey } from "luaparse";
import { type LuaValue, library, operators } from "./runtime.ts";

/** Runs a chunk with the given globals. Returns the chunk's return values. */
export type CompiledScript = (globals: Readonly<Record<string, LuaValue>>) => LuaValue[];

export function compileLua(source: string): CompiledScript {
  const chunk = parse(source, { luaVersion: "5.1", comments: false, encodingMode: "pseudo-latin1" });
  const code = new Compiler().chunk(chunk);
  const run = compileFunction(code, ["$", "G"]) as (
    runtime: typeof operators,
    globals: Readonly<Record<string, LuaValue>>,
  ) => LuaValue[];
  return (globals) => run(operators, { ...library, ...globals });
}

class Scope {
  readonly names = new Map<string, string>();
  readonly parent: Scope | undefined;

  constructor(parent?: Scope) {
    this.parent = parent;
  }

  find(name: string): string | undefined {
    return this.names.get(name) ?? this.parent?.find(name);
  }
}

const BINARY: Readonly<Record<string, string>> = {
  "+": "add",
  "-": "subtract",
  "*": "multiply",
  "/": "divide",
  "%": "modulo",
  "^": "power",
  "..": "concat",
};

class Compiler {
  #scope = new Scope();
  #count = 0;

  chunk(chunk: Chunk): string {
    return `"use strict";\n${this.#block(chunk.body)}return [];`;
  }

  #fresh(name: string): string {
    this.#count += 1;
    return `${name}$${this.#count}`;
  }

  #declare(name: string): string {
    const variable = this.#fresh(name);
    this.#scope.names.set(name, variable);
    return variable;
  }

  #scoped<Result>(run: () => Result): Result {
    const outer = this.#scope;
    this.#scope = new Scope(outer);
    const result = run();
    this.#scope = outer;
    return result;
  }

  #block(statements: readonly Statement[]): string {
    return statements.map((statement) => this.#statement(statement)).join("");
  }

  #body(statements: readonly Statement[]): string {
    return `{\n${this.#scoped(() => this.#block(statements))}}\n`;
  }

  #statement(statement: Statement): string {
    switch (statement.type) {
      case "LocalStatement": {
        const values = this.#values(statement.init, statement.variables.length);
        return this.#bind(statement.variables, values);
      }
      case "AssignmentStatement":
        return this.#assignment(statement.variables, statement.init);
      case "CallStatement":
        return `${this.#multiple(statement.expression)};\n`;
      case "ReturnStatement":
        return `return ${this.#list(statement.arguments)};\n`;
      case "IfStatement":
        return statement.clauses
          .map((clause, index) => {
            if (clause.type === "ElseClause") return `else ${this.#body(clause.body)}`;
            return `${index === 0 ? "" : "else "}if (${this.#condition(clause.condition)}) ${this.#body(clause.body)}`;
          })
          .join("");
      case "WhileStatement":
        return `while (${this.#condition(statement.condition)}) ${this.#body(statement.body)}`;
      case "DoStatement":
        return this.#body(statement.body);
      case "BreakStatement":
        return "break;\n";
      case "ForNumericStatement":
        return this.#numericFor(statement);
      case "ForGenericStatement":
        return this.#genericFor(statement);
      case "FunctionDeclaration": {
        if (statement.identifier?.type !== "Identifier") throw unsupported("function a.b()");
        if (!statement.isLocal) throw unsupported("global function");
        const variable = this.#declare(statement.identifier.name);
        return `let ${variable} = ${this.#function(statement.parameters, statement.body)};\n`;
      }
      default:
        throw unsupported(statement.type);
    }
  }

  #bind(variables: readonly Identifier[], values: readonly string[]): string {
    const lines: string[] = [this.#takeBefore()];
    const temporaries = values.map((value) => {
      const temporary = this.#fresh("value");
      lines.push(`const ${temporary} = ${value};\n`);
      return temporary;
    });
    for (const [index, variable] of variables.entries()) {
      lines.push(`let ${this.#declare(variable.name)} = ${temporaries[index] ?? "undefined"};\n`);
    }
    return lines.join("");
  }

  /** Returns one JavaScript expression per wanted value. */
  #values(expressions: readonly Expression[], wanted: number): readonly string[] {
    const last = expressions.at(-1);
    if (last === undefined || expressions.length >= wanted || !isMultiple(last)) {
      return expressions.map((expression) => this.#expression(expression));
    }
    const list = this.#fresh("list");
    this.#before = `const ${list} = ${this.#list(expressions)};\n`;
    return Array.from({ length: wanted }, (_, index) => `${list}[${index}]`);
  }

  /** A line to emit first, set by `#values` if the last expression returns several values. */
  #before = "";

  #takeBefore(): string {
    const line = this.#before;
    this.#before = "";
    return line;
  }

  #assignment(targets: readonly Expression[], init: readonly Expression[]): string {
    const values = this.#values(init, targets.length);
    const lines: string[] = [this.#takeBefore()];
    const temporaries = values.map((value) => {
      const temporary = this.#fresh("value");
      lines.push(`const ${temporary} = ${value};\n`);
      return temporary;
    });
    for (const [index, target] of targets.entries()) {
      const value = temporaries[index] ?? "undefined";
      if (target.type === "Identifier") lines.push(`${this.#variable(target.name)} = ${value};\n`);
      else if (target.type === "IndexExpression") {
        lines.push(`$.setIndex(${this.#expression(target.base)}, ${this.#expression(target.index)}, ${value});\n`);
      } else if (target.type === "MemberExpression") {
        lines.push(`$.setIndex(${this.#expression(target.base)}, ${quoted(target.identifier.name)}, ${value});\n`);
      } else throw unsupported(`assignment to ${target.type}`);
    }
    return `{ ${lines.join("")} }\n`;
  }

  #numericFor(statement: Statement & { type: "ForNumericStatement" }): string {
    const [from, to, by] = [this.#fresh("from"), this.#fresh("to"), this.#fresh("by")];
    const head =
      `const ${from} = $.add(0, ${this.#expression(statement.start)}), ${to} = $.add(0, ${this.#expression(statement.end)}), ` +
      `${by} = ${statement.step === null ? "1" : `$.add(0, ${this.#expression(statement.step)})`};\n`;
    const at = this.#fresh("at");
    const body = this.#scoped(() => {
      const variable = this.#declare(statement.variable.name);
      return `let ${variable} = ${at};\n${this.#block(statement.body)}`;
    });
    return `{ ${head}for (let ${at} = ${from}; ${by} > 0 ? ${at} <= ${to} : ${at} >= ${to}; ${at} += ${by}) {\n${body}}\n}\n`;
  }

  #genericFor(statement: Statement & { type: "ForGenericStatement" }): string {
    const [iterator, values] = [this.#fresh("iterator"), this.#fresh("values")];
    const body = this.#scoped(() => {
      const names = statement.variables.map((variable) => this.#declare(variable.name));
      const lets = names.map((name, index) => `let ${name} = ${values}[${index}];\n`).join("");
      return `${lets}${this.#block(statement.body)}`;
    });
    return (
      `{ const ${iterator} = ${this.#list(statement.iterators)};\n` +
      `for (let ${values} = $.call(${iterator}[0], ${iterator}[1], ${iterator}[2]); ${values}[0] !== undefined; ` +
      `${values} = $.call(${iterator}[0], ${iterator}[1], ${values}[0])) {\n${body}}\n}\n`
    );
  }

  #function(parameters: readonly (Identifier | { type: "VarargLiteral" })[], body: readonly Statement[]): string {
    return this.#scoped(() => {
      const names = parameters.map((parameter) => {
        if (parameter.type !== "Identifier") throw unsupported("...");
        return this.#declare(parameter.name);
      });
      return `(${names.join(", ")}) => {\n${this.#block(body)}return [];\n}`;
    });
  }

  /** Returns a list of all values, with the last expression expanded, for `return` and arguments. */
  #list(expressions: readonly Expression[]): string {
    return `[${this.#spread(expressions)}]`;
  }

  #spread(expressions: readonly Expression[]): string {
    return expressions
      .map((expression, index) => {
        const isLast = index === expressions.length - 1;
        return isLast && isMultiple(expression) ? `...${this.#multiple(expression)}` : this.#expression(expression);
      })
      .join(", ");
  }

  /** Returns a call as an expression for the list of its values. */
  #multiple(expression: Expression): string {
    if (expression.type === "CallExpression") {
      const { base } = expression;
      if (base.type === "MemberExpression" && base.indexer === ":") {
        const object = this.#expression(base.base);
        const args = this.#spread(expression.arguments);
        return `((object) => $.call($.index(object, ${quoted(base.identifier.name)}), object, ${args}))(${object})`;
      }
      const args = this.#spread(expression.arguments);
      return `$.call(${this.#expression(base)}${args === "" ? "" : `, ${args}`})`;
    }
    if (expression.type === "StringCallExpression") {
      return `$.call(${this.#expression(expression.base)}, ${this.#expression(expression.argument)})`;
    }
    throw unsupported(expression.type);
  }

  #variable(name: string): string {
    return this.#scope.find(name) ?? `G[${quoted(name)}]`;
  }

  #condition(expression: Expression): string {
    return `$.isTrue(${this.#expression(expression)})`;
  }

  #expression(expression: Expression): string {
    switch (expression.type) {
      case "Identifier":
        return this.#variable(expression.name);
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
        return `${this.#multiple(expression)}[0]`;
      case "IndexExpression":
        return `$.index(${this.#expression(expression.base)}, ${this.#expression(expression.index)})`;
      case "MemberExpression":
        return `$.index(${this.#expression(expression.base)}, ${quoted(expression.identifier.name)})`;
      case "UnaryExpression":
        if (expression.operator === "not") return `(!${this.#condition(expression.argument)})`;
        if (expression.operator === "#") return `$.length(${this.#expression(expression.argument)})`;
        if (expression.operator === "-") return `$.negate(${this.#expression(expression.argument)})`;
        throw unsupported(expression.operator);
      case "BinaryExpression":
        return this.#binary(expression.operator, this.#expression(expression.left), this.#expression(expression.right));
      case "LogicalExpression": {
        const left = this.#fresh("left");
        const right = this.#expression(expression.right);
        const [yes, no] = expression.operator === "and" ? [right, left] : [left, right];
        return `((${left}) => $.isTrue(${left}) ? ${yes} : ${no})(${this.#expression(expression.left)})`;
      }
      case "TableConstructorExpression":
        return this.#table(expression.fields);
      case "FunctionDeclaration":
        return this.#function(expression.parameters, expression.body);
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
    const table = this.#fresh("table");
    const lines: string[] = [];
    let next = 1;
    for (const [index, field] of (fields as readonly TableField[]).entries()) {
      if (field.type === "TableKeyString") {
        lines.push(`${table}.set(${quoted(field.key.name)}, ${this.#expression(field.value)});`);
      } else if (field.type === "TableKey") {
        lines.push(`${table}.set(${this.#expression(field.key)}, ${this.#expression(field.value)});`);
      } else {
        const isLast = index === fields.length - 1;
        if (isLast && isMultiple(field.value)) {
          lines.push(`$.setList(${table}, ${next}, ${this.#multiple(field.value)});`);
        } else lines.push(`${table}.set(${next}, ${this.#expression(field.value)});`);
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

function isMultiple(expression: Expression): boolean {
  return expression.type === "CallExpression" || expression.type === "StringCallExpression";
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

function unsupported(what: string): Error {
  return new TypeError(`the simulation's Lua has no ${what}`);
}
