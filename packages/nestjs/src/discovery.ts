/** What the decorators have marked, found among the providers and controllers of an application. */
import "reflect-metadata";
import type { DiscoveryService, MetadataScanner } from "@nestjs/core";
import { methodName } from "./rules/names.ts";

type Wrapper = ReturnType<DiscoveryService["getProviders"]>[number];

export interface MarkedMethod<Mark> {
  /** `BillingService.nightly()`. */
  readonly name: string;
  /** `BillingService.nightly`: as the default of a name. */
  readonly shortName: string;
  readonly mark: Mark;
  readonly call: (...args: readonly unknown[]) => unknown;
}

export interface MarkedObject<Mark> {
  readonly name: string;
  readonly mark: Mark;
  readonly object: object;
}

/** The key under which a decorator leaves its options, and the decorator's name. */
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

  /** Returns the marked methods. Throws for one whose object does not live as long as the application. */
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

  /** Returns the objects of marked classes. Throws for one that does not live as long as the application. */
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

  /** Each object once, though `useExisting` gives it several names. */
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

/** Returns the prototype of an object. If its class makes one for each request, there is only the class. */
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
    `${name} is ${decorator}, but ${wrapper.name} is ${scope}, itself or by what is injected into it: there is no one object to call`,
  );
}
