export type {
  DivisionOptions,
  NewJob,
  PartitionedQueueOptions,
  PartitionedWorkerOptions,
  ProducerKey,
} from "./options.ts";
export { type BulkJob, PartitionedQueue } from "./partitioned-queue.ts";
export { PartitionedWorker } from "./partitioned-worker.ts";
export type { MoveOptions } from "./repartition.ts";
export { partitionOf, queueName, serverOf } from "./rules/partition.ts";
