/** The Nest module, and the decorators that inject its objects into constructors. */
import "reflect-metadata";
import {
  type DynamicModule,
  type FactoryProvider,
  Inject,
  Module,
  type ModuleMetadata,
  type Provider,
} from "@nestjs/common";
import { DiscoveryModule, DiscoveryService, MetadataScanner, ModuleRef, ModulesContainer } from "@nestjs/core";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { Check, callback, Schema, type ShapeOf } from "@x/redlock-core/kit";
import { Discovery } from "./discovery.ts";
import { CoordinationHealth } from "./health.ts";
import { Leadership } from "./leader/leadership.ts";
import { Lifecycle } from "./lifecycle.ts";
import { LockedCalls } from "./locked/locked-calls.ts";
import { type CoordinationOptions, type ResolvedCoordinationOptions, resolveOptions } from "./options.ts";
import { ExclusiveWorkers } from "./workers/exclusive-workers.ts";

/** Options that are created when the application starts, as in other Nest modules. */
export interface CoordinationAsyncOptions {
  /** Modules whose providers can be injected. */
  readonly imports?: ModuleMetadata["imports"];
  /** The arguments of `useFactory`. */
  readonly inject?: FactoryProvider["inject"];
  readonly useFactory: (...args: never[]) => CoordinationOptions | Promise<CoordinationOptions>;
}

const LIST = new Check<never[]>({ rule: "an array", faultOf: (given) => (Array.isArray(given) ? undefined : "type") });

const ASYNC = new Schema({
  imports: LIST.optional(),
  inject: LIST.optional(),
  useFactory: callback<CoordinationAsyncOptions["useFactory"]>(),
} satisfies ShapeOf<CoordinationAsyncOptions>);

const OPTIONS = Symbol("x.nestjs.options");

/** The module of everything that can be injected. Nest initialises global modules first, and shuts them down last. */
class CoordinationCore {
  readonly #lifecycle: Lifecycle;

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle;
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#lifecycle.close();
  }
}
Module({})(CoordinationCore);
Inject(Lifecycle)(CoordinationCore, undefined, 0);

function coreModule(imports: NonNullable<ModuleMetadata["imports"]>, options: Provider): DynamicModule {
  const shared: Provider[] = [
    { provide: Redlock, inject: [OPTIONS], useFactory: ({ redlock }: ResolvedCoordinationOptions) => redlock },
    { provide: LeaderElection, inject: [OPTIONS], useFactory: electionOf },
    { provide: LeaderScheduler, inject: [OPTIONS, LeaderElection], useFactory: schedulerOf },
    { provide: LockedCalls, inject: [Redlock], useFactory: (redlock: Redlock) => new LockedCalls(redlock) },
    {
      provide: CoordinationHealth,
      inject: [Redlock, LeaderElection, ExclusiveWorkers],
      useFactory: (redlock: Redlock, election: LeaderElection | null, workers: ExclusiveWorkers) =>
        new CoordinationHealth(redlock, election, workers),
    },
    {
      provide: Lifecycle,
      inject: [
        OPTIONS,
        DiscoveryService,
        MetadataScanner,
        LockedCalls,
        ExclusiveWorkers,
        LeaderElection,
        LeaderScheduler,
      ],
      useFactory: (
        options: ResolvedCoordinationOptions,
        discovery: DiscoveryService,
        scanner: MetadataScanner,
        calls: LockedCalls,
        workers: ExclusiveWorkers,
        election: LeaderElection | null,
        scheduler: LeaderScheduler | null,
      ) => {
        const leadership = new Leadership(election, scheduler);
        return new Lifecycle({ options, discovery: new Discovery(discovery, scanner), calls, workers, leadership });
      },
    },
  ];
  return {
    module: CoordinationCore,
    global: true,
    imports: [...imports, DiscoveryModule],
    providers: [
      options,
      {
        provide: ExclusiveWorkers,
        inject: [Redlock, ModuleRef],
        useFactory: (redlock: Redlock, providers: ModuleRef) => new ExclusiveWorkers(redlock, providers),
      },
      ...shared,
    ],
    exports: [Redlock, LeaderElection, LeaderScheduler, LockedCalls, CoordinationHealth, Lifecycle],
  };
}

function electionOf({ redlock, election }: ResolvedCoordinationOptions): LeaderElection | null {
  return election === undefined ? null : new LeaderElection(redlock, election);
}

function schedulerOf(
  { scheduler, drainTimeout }: ResolvedCoordinationOptions,
  election: LeaderElection | null,
): LeaderScheduler | null {
  return election === null ? null : new LeaderScheduler({ ...scheduler, election, drainTimeout });
}

/**
 * Locks, leader-only tasks and exclusive processors for a Nest application. Import this module once, in the root
 * module. Any class can then inject `Redlock`, `LeaderElection`, `LeaderScheduler` and `CoordinationHealth`.
 *
 * The module works until the application is closed: by `app.close()`, or by a signal after `app.enableShutdownHooks()`.
 */
export class CoordinationModule {
  readonly #lifecycle: Lifecycle;

  /** Called by Nest. */
  constructor(lifecycle: Lifecycle, modules: ModulesContainer) {
    this.#lifecycle = lifecycle;
    const own = [...modules.values()].filter(({ metatype }) => metatype === CoordinationModule);
    if (own.length > 1) throw new Error(`CoordinationModule must be imported once, got ${own.length} imports`);
    // Nest calls the hooks of modules by distance. With -1, work begins when all other modules are ready, and ends
    // before they shut down.
    for (const module of own) module.distance = -1;
  }

  /** Creates the module. Throws TypeError or RangeError for bad options. */
  static forRoot(options: CoordinationOptions): DynamicModule {
    const resolved = resolveOptions(options);
    return { module: CoordinationModule, imports: [coreModule([], { provide: OPTIONS, useValue: resolved })] };
  }

  /** Creates the module with options that are created when the application starts. */
  static forRootAsync(options: CoordinationAsyncOptions): DynamicModule {
    const { imports = [], inject = [], useFactory } = ASYNC.resolve(options);
    const provider: Provider = {
      provide: OPTIONS,
      inject,
      useFactory: async (...args: never[]) => resolveOptions(await useFactory(...args)),
    };
    return { module: CoordinationModule, imports: [coreModule(imports, provider)] };
  }

  onModuleInit(): void {
    this.#lifecycle.prepare();
  }

  onApplicationBootstrap(): void {
    this.#lifecycle.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.#lifecycle.drain();
  }
}
Module({})(CoordinationModule);
Inject(Lifecycle)(CoordinationModule, undefined, 0);
Inject(ModulesContainer)(CoordinationModule, undefined, 1);

type InjectDecorator = ReturnType<typeof Inject>;

/** Injects the module's `Redlock`. The `Inject…` decorators also work if no types are emitted for Nest to read. */
export function InjectRedlock(): InjectDecorator {
  return Inject(Redlock);
}

/** Injects the module's `LeaderElection`. Injects null if the module has no option `election`. */
export function InjectElection(): InjectDecorator {
  return Inject(LeaderElection);
}

/** Injects the module's `LeaderScheduler`. Injects null if the module has no option `election`. */
export function InjectScheduler(): InjectDecorator {
  return Inject(LeaderScheduler);
}
