/** Pure: what errors call a class and a method. */

/** A class as a decorator gets it: an object whose constructor has the name, or the constructor itself. */
export function methodName(target: object, key: string | symbol): string {
  const owner = typeof target === "function" ? target : target.constructor;
  return `${owner.name}.${String(key)}()`;
}

/** What a decorator of a method is called with. */
export interface Decorated {
  readonly target: object;
  readonly key: string | symbol;
  readonly value: unknown;
}

/**
 * Returns the method. Throws unless it is one of instances, whose name is a string, as Nest's own discovery asks for.
 */
export function instanceMethod(decorator: string, { target, key, value }: Decorated): (...args: never[]) => unknown {
  if (typeof target === "object" && typeof value === "function" && typeof key === "string")
    return value as (...args: never[]) => unknown;
  throw new TypeError(`${methodName(target, key)} must be a method of instances to be ${decorator}`);
}

/** Returns the same error with the place in front of its message. */
export function at(place: string, error: unknown): unknown {
  if (error instanceof Error) error.message = `${place}: ${error.message}`;
  return error;
}
