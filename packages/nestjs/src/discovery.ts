/**
 * Finds the classes and methods that the decorators have marked, among the providers and controllers of an application.
 */
import "reflect-metadata";
import type { DiscoveryService, MetadataScanner } from "@nestjs/core";
import { methodName } from "./rules/names.ts";

type Wrapper = ReturnType<DiscoveryService["getProviders"]>[number];

export interface MarkedMethod<Mark> {
  /** Such as `BillingService.nightly()`. */
  readonly name: string;
  /** The default of a schedule's name, such as `BillingService.nightly`. */
  readonly shortName: string;
  readonly mark: Mark;
  readonly call: (...args: readonly unknown[]) => unknown;
}

export interface MarkedObject<Mark> {
  readonly name: string;
  readonly mark: Mark;
  readonly object: object;
}

/** The metadata key under which a decorator stores its options, and the name of the decorator. */
export interface Marker {
  readonly key: symbol;
  readonly decorator: string;
}

export class Discovery {
  readonly #discovery: DiscoveryService;
  readonly #scanner: MetadataScanner;

  constructor(discovery: DiscoveryService, scanner: MetadataScanner) {
    this.#discovery = discovery;
    this.#scanner = scanner;
  }

  /** Returns the marked methods. Throws if the object of a method does not live as long as the application. */
  methods<Mark>(marker: Marker): readonly MarkedMethod<Mark>[] {
    return this.#wrappers().flatMap((wrapper) => {
      const prototype = prototypeOf(wrapper);
      if (prototype === undefined) return [];
      const found = this.#methodsIn<Mark>(prototype, wrapper.instance as object, marker.key);
      for (const { name } of found) checkScope(wrapper, name, marker);
      return found;
    });
  }

  /** Returns the marked methods of one object. */
  methodsOf<Mark>(object: object, key: unknown): readonly MarkedMethod<Mark>[] {
    return this.#methodsIn(Object.getPrototypeOf(object) as object, object, key);
  }

  /** Returns the objects of marked classes. Throws for an object that does not live as long as the application. */
  objects<Mark>(marker: Marker): readonly MarkedObject<Mark>[] {
    return this.#wrappers().flatMap((wrapper): readonly MarkedObject<Mark>[] => {
      const prototype = prototypeOf(wrapper);
      if (prototype === undefined || !Reflect.hasMetadata(marker.key, prototype.constructor)) return [];
      const { name } = prototype.constructor;
      checkScope(wrapper, name, marker);
      const mark = Reflect.getMetadata(marker.key, prototype.constructor) as Mark;
      return [{ name, mark, object: wrapper.instance as object }];
    });
  }

  #methodsIn<Mark>(prototype: object, object: object, metadataKey: unknown): readonly MarkedMethod<Mark>[] {
    return this.#scanner.getAllMethodNames(prototype).flatMap((key): readonly MarkedMethod<Mark>[] => {
      const method = (prototype as Readonly<Record<string, (...args: readonly unknown[]) => unknown>>)[key];
      if (method === undefined || !Reflect.hasMetadata(metadataKey, method)) return [];
      const name = methodName(prototype, key);
      const mark = Reflect.getMetadata(metadataKey, method) as Mark;
      return [{ name, shortName: name.slice(0, -2), mark, call: (...args) => method.apply(object, [...args]) }];
    });
  }

  /** Returns each object once, even if `useExisting` registers it under several names. */
  #wrappers(): readonly Wrapper[] {
    const wrappers = [...this.#discovery.getControllers(), ...this.#discovery.getProviders()];
    const seen = new Set<unknown>();
    return wrappers.filter((wrapper) => {
      const { instance } = wrapper as { readonly instance: unknown };
      if (seen.has(instance)) return false;
      if (instance !== undefined && instance !== null) seen.add(instance);
      return true;
    });
  }
}

/**
 * Returns the prototype of a provider's object. A request-scoped class has no object yet, so its own prototype is
 * returned.
 */
function prototypeOf(wrapper: Wrapper): { readonly constructor: { readonly name: string } } | undefined {
  const { instance, metatype } = wrapper as { readonly instance: unknown; readonly metatype: unknown };
  const isClass = (wrapper.inject ?? null) === null && typeof metatype === "function";
  const prototype: unknown =
    typeof instance === "object" && instance !== null
      ? Object.getPrototypeOf(instance)
      : isClass
        ? metatype.prototype
        : undefined;
  if (typeof prototype !== "object" || prototype === null || prototype === Object.prototype) return undefined;
  return typeof prototype.constructor === "function" ? prototype : undefined;
}

function checkScope(wrapper: Wrapper, name: string, { decorator }: Marker): void {
  const isStatic = wrapper.isDependencyTreeStatic();
  if (isStatic && !wrapper.isTransient) return;
  const scope = isStatic ? "transient" : "request-scoped";
  throw new TypeError(
    `${name} is ${decorator}, but ${wrapper.name} is ${scope}, itself or through an injected dependency: Nest has no single object to call`,
  );
}
