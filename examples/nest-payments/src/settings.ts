export const redisUrl: string = process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379";

/** By it the closings tell who led. */
export const replicaName: string = process.env["REPLICA"] ?? `${process.pid}`;
