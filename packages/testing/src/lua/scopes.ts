/** The names of JavaScript variables for Lua's local variables, by the scope that declares them. */

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

export class Scopes {
  #current = new Scope();
  #count = 0;

  /** Returns a JavaScript name that no other variable has. */
  fresh(name: string): string {
    this.#count += 1;
    return `${name}$${this.#count}`;
  }

  /** Declares a local variable of Lua in the current scope. Returns its name in JavaScript. */
  declare(name: string): string {
    const variable = this.fresh(name);
    this.#current.names.set(name, variable);
    return variable;
  }

  /** Returns the JavaScript name of a local variable. Undefined for a global variable. */
  find(name: string): string | undefined {
    return this.#current.find(name);
  }

  /** Calls `run` in a new scope. */
  scoped<Result>(run: () => Result): Result {
    const outer = this.#current;
    this.#current = new Scope(outer);
    const result = run();
    this.#current = outer;
    return result;
  }
}
