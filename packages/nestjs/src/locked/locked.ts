/** `@Locked`: a method that runs while it holds a lock. */
import "reflect-metadata";
import { Inject } from "@nestjs/common";
import type { UsingOptions } from "@x/redlock-core";
import { instanceMethod, methodName } from "../rules/names.ts";
import { LockedCalls } from "./locked-calls.ts";

/** The key under which an instance has what Nest injected. */
const CALLS = Symbol("x.nestjs.lockedCalls");

type ResourcesOf = (...args: readonly unknown[]) => string | readonly string[];

type AsyncMethod = (...args: never[]) => Promise<unknown>;

/** A method whose arguments the function of the resource can take. */
type Fitting<Method extends AsyncMethod, Args extends readonly unknown[]> =
  Parameters<Method> extends readonly [...Args, ...(readonly unknown[])] ? Method : never;

export type LockedMethodDecorator<Args extends readonly unknown[]> = <Method extends AsyncMethod>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Fitting<Method, Args> & Method>,
) => void;

/**
 * Runs the method while it holds the lock on `resource`: a name, several names, or a function of the method's arguments
 * that returns them. It is called with the instance as `this`.
 *
 * The lock is extended while the method runs and released when its promise has settled. `currentLock()` returns it. A
 * call that does not get the lock within `timeout` rejects with `LockHeldError`. A `@Locked` method that calls another
 * one for the same resource rejects with `ReentrancyError`, or joins with `reentrancy: "join"`.
 *
 * Guards, pipes and interceptors of a controller run before the lock is asked for.
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

/** What other decorators have said of the method, and what they look at, is true of its stand-in, too. */
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
