export type {
  DivisionOptions,
  NewJob,
  PartitionedQueueOptions,
  PartitionedWorkerOptions,
  ProducerKey,
} from "./options.ts";
export { partitionOf, queueName, serverOf } from "./partition.ts";
export { type BulkJob, PartitionedQueue } from "./partitioned-queue.ts";
export { PartitionedWorker } from "./partitioned-worker.ts";
export type { MoveOptions } from "./repartition.ts";
