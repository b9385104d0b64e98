export { Child, type ChildOptions, spawnChild } from "./child.ts";
export { machineMs } from "./clock.ts";
export { type RedisCluster, startCluster } from "./cluster.ts";
export { watchForLeaks } from "./leaks.ts";
export { type Exit, runningProcesses } from "./processes.ts";
export { type Direction, FaultyProxy, type ProxyConnection, type ProxyTarget, startProxy } from "./proxy.ts";
export { RedisServer, type RedisServerOptions, startRedis, startRedisNodes } from "./redis.ts";
export { redisBinary } from "./redis-binary.ts";
export { temporaryFolder } from "./watchdog.ts";
