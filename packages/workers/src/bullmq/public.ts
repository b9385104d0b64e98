/** The part of BullMQ's public interface that this package uses. Only this folder imports BullMQ. */
export {
  type ConnectionOptions,
  DelayedError,
  type FlowJob,
  FlowProducer,
  Job,
  type JobNode,
  type JobSchedulerTemplateOptions,
  type JobsOptions,
  type JobType,
  Queue,
  type QueueListener,
  type QueueOptions,
  type RepeatOptions,
  Worker,
  type WorkerListener,
  type WorkerOptions,
} from "bullmq";
