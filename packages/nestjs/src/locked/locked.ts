/** `@Locked`: a method that runs while it holds a lock. */
import "reflect-metadata";
import { Inject } from "@nestjs/common";
import type { UsingOptions } from "@x/redlock-core";
import { instanceMethod, methodName } from "../rules/names.ts";
import { LockedCalls } from "./locked-calls.ts";

/** The property of an instance that holds the injected `LockedCalls`. */
const CALLS = Symbol("x.nestjs.lockedCalls");

type ResourcesOf = (...args: readonly unknown[]) => string | readonly string[];

type AsyncMethod = (...args: never[]) => Promise<unknown>;

/** `Method`, if the function of the resource accepts the method's arguments. Otherwise never. */
type Fitting<Method extends AsyncMethod, Args extends readonly unknown[]> =
  Parameters<Method> extends readonly [...Args, ...(readonly unknown[])] ? Method : never;

export type LockedMethodDecorator<Args extends readonly unknown[]> = <Method extends AsyncMethod>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Fitting<Method, Args> & Method>,
) => void;

/**
 * Runs the method while it holds the lock on `resource`: a name, several names, or a function of the method's arguments
 * that returns the names. This function is called with the instance as `this`.
 *
 * The lock is extended while the method runs, and released when the method's promise has settled. `currentLock()`
 * returns the lock. If the lock is not free within `timeout`, the call rejects with `LockHeldError`. A `@Locked` method
 * that calls another `@Locked` method for the same resource rejects with `ReentrancyError`, or joins the lock with
 * `reentrancy: "join"`.
 *
 * Guards, pipes and interceptors of a controller run before the lock is requested.
 */
// oxlint-disable-next-line typescript/no-explicit-any -- what a parameter without a type is
export function Locked<const Args extends readonly unknown[] = readonly any[]>(
  resource: string | readonly string[] | ((...args: Args) => string | readonly string[]),
  options: UsingOptions = {},
): LockedMethodDecorator<Args> {
  return (target, key, descriptor) => {
    const name = methodName(target, key);
    const method = instanceMethod("@Locked", { target, key, value: descriptor.value });
    const resourcesOf = (typeof resource === "function" ? resource : () => resource) as unknown as ResourcesOf;

    async function locked(this: object, ...args: unknown[]): Promise<unknown> {
      const calls = (this as { readonly [CALLS]?: LockedCalls })[CALLS];
      if (calls === undefined)
        throw new Error(`${name} is @Locked, and its object must be made by Nest, with CoordinationModule imported`);
      return await calls.run({
        method: name,
        resources: () => resourcesOf.apply(this, args),
        options,
        run: () => method.apply(this, args as never[]),
      });
    }
    Object.assign(descriptor, { value: standIn(method, locked) });
    Inject(LockedCalls)(target, CALLS);
  };
}

/**
 * Copies the metadata of other decorators, the name and the number of parameters from the method to its replacement.
 */
function standIn<Method extends (...args: never[]) => unknown>(
  method: (...args: never[]) => unknown,
  by: Method,
): Method {
  for (const key of Reflect.getOwnMetadataKeys(method) as unknown[])
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, method), by);
  for (const property of ["name", "length"] as const)
    Object.defineProperty(by, property, { value: method[property], configurable: true });
  return by;
}
