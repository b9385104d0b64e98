/**
 * The world under the nodes in memory, for the tests of this repository: its simulation is built on the same world. The
 * package does not export this file.
 */
export { type Forcing, type Hold, INVARIANTS, type Interval, LockChecker, validityEnd } from "./checker.ts";
export { type CompiledScript, compileLua } from "./lua/compile.ts";
export { byName, type KeyFacts } from "./redis/keyspace.ts";
export { type Reply, ReplyError, Status } from "./redis/reply.ts";
export { type ClientReply, evaluate } from "./redis/scripts.ts";
export { Store, type Surroundings } from "./redis/store.ts";
export { Drift } from "./world/drift.ts";
export { Link, type NetworkOptions } from "./world/link.ts";
export { Machine, type MachineOptions } from "./world/machine.ts";
export { SeededRandom } from "./world/random.ts";
export { type Amnesia, Server, type ServerOptions, type Subscriber } from "./world/server.ts";
export { EPOCH_MS, type RecordedEvent, type Violation, World, type WorldOptions } from "./world/world.ts";
