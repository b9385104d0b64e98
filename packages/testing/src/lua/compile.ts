/**
 * Compiles Lua 5.1 to JavaScript, so that the nodes of the simulation run the scripts of production, not a copy.
 *
 * Compiled code runs a batch in microseconds and a whole schedule in milliseconds, which an interpreter of the syntax
 * tree would not. Syntax that the scripts do not use (goto, varargs, method definitions) throws at compile time.
 */
import { compileFunction } from "node:vm";
import { type Chunk, type Expression, type Identifier, parse, type Statement } from "luaparse";
import { Expressions, isMultiple, quoted, unsupported } from "./expressions.ts";
import { type LuaValue, library, operators } from "./runtime.ts";
import { Scopes } from "./scopes.ts";

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

class Compiler {
  readonly #scopes = new Scopes();
  readonly #expressions = new Expressions(this.#scopes, (parameters, body) => this.#function(parameters, body));

  chunk(chunk: Chunk): string {
    return `"use strict";\n${this.#block(chunk.body)}return [];`;
  }

  #block(statements: readonly Statement[]): string {
    return statements.map((statement) => this.#statement(statement)).join("");
  }

  #body(statements: readonly Statement[]): string {
    return `{\n${this.#scopes.scoped(() => this.#block(statements))}}\n`;
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
        return `${this.#expressions.multiple(statement.expression)};\n`;
      case "ReturnStatement":
        return `return ${this.#expressions.list(statement.arguments)};\n`;
      case "IfStatement":
        return statement.clauses
          .map((clause, index) => {
            if (clause.type === "ElseClause") return `else ${this.#body(clause.body)}`;
            return `${index === 0 ? "" : "else "}if (${this.#expressions.condition(clause.condition)}) ${this.#body(clause.body)}`;
          })
          .join("");
      case "WhileStatement":
        return `while (${this.#expressions.condition(statement.condition)}) ${this.#body(statement.body)}`;
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
        const variable = this.#scopes.declare(statement.identifier.name);
        return `let ${variable} = ${this.#function(statement.parameters, statement.body)};\n`;
      }
      default:
        throw unsupported(statement.type);
    }
  }

  #bind(variables: readonly Identifier[], values: readonly string[]): string {
    const lines: string[] = [this.#takeBefore()];
    const temporaries = values.map((value) => {
      const temporary = this.#scopes.fresh("value");
      lines.push(`const ${temporary} = ${value};\n`);
      return temporary;
    });
    for (const [index, variable] of variables.entries()) {
      lines.push(`let ${this.#scopes.declare(variable.name)} = ${temporaries[index] ?? "undefined"};\n`);
    }
    return lines.join("");
  }

  /** Returns one JavaScript expression per wanted value. */
  #values(expressions: readonly Expression[], wanted: number): readonly string[] {
    const last = expressions.at(-1);
    if (last === undefined || expressions.length >= wanted || !isMultiple(last)) {
      return expressions.map((expression) => this.#expressions.expression(expression));
    }
    const list = this.#scopes.fresh("list");
    this.#before = `const ${list} = ${this.#expressions.list(expressions)};\n`;
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
      const temporary = this.#scopes.fresh("value");
      lines.push(`const ${temporary} = ${value};\n`);
      return temporary;
    });
    for (const [index, target] of targets.entries()) {
      const value = temporaries[index] ?? "undefined";
      if (target.type === "Identifier") lines.push(`${this.#expressions.variable(target.name)} = ${value};\n`);
      else if (target.type === "IndexExpression") {
        lines.push(
          `$.setIndex(${this.#expressions.expression(target.base)}, ${this.#expressions.expression(target.index)}, ${value});\n`,
        );
      } else if (target.type === "MemberExpression") {
        lines.push(
          `$.setIndex(${this.#expressions.expression(target.base)}, ${quoted(target.identifier.name)}, ${value});\n`,
        );
      } else throw unsupported(`assignment to ${target.type}`);
    }
    return `{ ${lines.join("")} }\n`;
  }

  #numericFor(statement: Statement & { type: "ForNumericStatement" }): string {
    const [from, to, by] = [this.#scopes.fresh("from"), this.#scopes.fresh("to"), this.#scopes.fresh("by")];
    const head =
      `const ${from} = $.add(0, ${this.#expressions.expression(statement.start)}), ${to} = $.add(0, ${this.#expressions.expression(statement.end)}), ` +
      `${by} = ${statement.step === null ? "1" : `$.add(0, ${this.#expressions.expression(statement.step)})`};\n`;
    const at = this.#scopes.fresh("at");
    const body = this.#scopes.scoped(() => {
      const variable = this.#scopes.declare(statement.variable.name);
      return `let ${variable} = ${at};\n${this.#block(statement.body)}`;
    });
    return `{ ${head}for (let ${at} = ${from}; ${by} > 0 ? ${at} <= ${to} : ${at} >= ${to}; ${at} += ${by}) {\n${body}}\n}\n`;
  }

  #genericFor(statement: Statement & { type: "ForGenericStatement" }): string {
    const [iterator, values] = [this.#scopes.fresh("iterator"), this.#scopes.fresh("values")];
    const body = this.#scopes.scoped(() => {
      const names = statement.variables.map((variable) => this.#scopes.declare(variable.name));
      const lets = names.map((name, index) => `let ${name} = ${values}[${index}];\n`).join("");
      return `${lets}${this.#block(statement.body)}`;
    });
    return (
      `{ const ${iterator} = ${this.#expressions.list(statement.iterators)};\n` +
      `for (let ${values} = $.call(${iterator}[0], ${iterator}[1], ${iterator}[2]); ${values}[0] !== undefined; ` +
      `${values} = $.call(${iterator}[0], ${iterator}[1], ${values}[0])) {\n${body}}\n}\n`
    );
  }

  #function(parameters: readonly (Identifier | { type: "VarargLiteral" })[], body: readonly Statement[]): string {
    return this.#scopes.scoped(() => {
      const names = parameters.map((parameter) => {
        if (parameter.type !== "Identifier") throw unsupported("...");
        return this.#scopes.declare(parameter.name);
      });
      return `(${names.join(", ")}) => {\n${this.#block(body)}return [];\n}`;
    });
  }
}
