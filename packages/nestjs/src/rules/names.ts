/** Pure: names of classes and methods in error messages. */

/**
 * Returns `Class.method()`. `target` is the argument of a decorator: a prototype, or the class itself for a static
 * method.
 */
export function methodName(target: object, key: string | symbol): string {
  const owner = typeof target === "function" ? target : target.constructor;
  return `${owner.name}.${String(key)}()`;
}

/** The arguments of a method decorator. */
export interface Decorated {
  readonly target: object;
  readonly key: string | symbol;
  readonly value: unknown;
}

/**
 * Returns the decorated method. Throws for a static method, and for a name that is a symbol: Nest's discovery finds
 * neither.
 */
export function instanceMethod(decorator: string, { target, key, value }: Decorated): (...args: never[]) => unknown {
  if (typeof target === "object" && typeof value === "function" && typeof key === "string")
    return value as (...args: never[]) => unknown;
  throw new TypeError(`${methodName(target, key)} must be a method of instances to be ${decorator}`);
}

/** Returns the same error, with `place` at the start of its message. */
export function at(place: string, error: unknown): unknown {
  if (error instanceof Error) error.message = `${place}: ${error.message}`;
  return error;
}
