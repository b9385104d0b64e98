/** A chat agent: turns, one at a time per conversation, and calls of the model, a few at a time per tenant. */
import { ExclusiveWorker } from "@x/workers";
import { type ConnectionOptions, type Job, Queue, QueueEvents } from "bullmq";
import { type Prompt, type Provider, TooManyRequests } from "./provider.ts";

export interface Message {
  readonly tenantId: string;
  readonly conversationId: string;
  readonly text: string;
}

export interface Agent extends AsyncDisposable {
  /** Who types goes on while the agent answers: what comes meanwhile is answered together. */
  readonly chats: Queue<Message>;
  /** Who speaks again does not want to hear the end of the answer. */
  readonly voices: Queue<Message>;
}

export interface AgentParts {
  readonly connection: ConnectionOptions;
  readonly provider: Provider;
  /** For how long a turn waits for more messages, in ms. */
  readonly typingMs: number;
  /** Called with the messages of a turn: the one place that writes a conversation's history. */
  readonly onTurn: (messages: readonly Message[], answer: () => Promise<string>) => Promise<string>;
}

/** A turn does nothing but wait, so that many are cheap. */
const TURNS = 100;
const CALLS = 8;
const CALLS_PER_TENANT = 2;

export function startAgent({ connection, provider, typingMs, onTurn }: AgentParts): Agent {
  const chats = new Queue<Message>("chats", { connection });
  const voices = new Queue<Message>("voices", { connection });
  const calls = new Queue<Prompt, string>("calls", { connection });
  const callEvents = new QueueEvents("calls", { connection });
  for (const each of [calls, callEvents]) each.setMaxListeners(0); // some for each turn that waits

  const caller = new ExclusiveWorker<Prompt, string>(
    "calls",
    async (job, _token, signal, lock) => {
      try {
        return await provider.complete(job.data, signal);
      } catch (error) {
        // This call goes back as it came, without an attempt, and nothing of its tenant starts until then.
        if (error instanceof TooManyRequests) lock.backOff(error.retryAfterMs);
        throw error;
      }
    },
    { connection, concurrency: CALLS, key: "tenantId", perKey: { concurrency: CALLS_PER_TENANT } },
  );

  async function call(prompt: Prompt, jobId: string, signal: AbortSignal): Promise<string> {
    // A turn whose process has died is run again, and finds its call, unless another message came to it meanwhile.
    const asked = await calls.add("call", prompt, { jobId });
    const stopped = new Promise<never>((_resolve, reject) => {
      const stop = (): void => {
        // It runs here, or waits. If it runs in another process, it goes on, and nobody listens.
        if (!caller.cancelJob(jobId, "nobody listens any more")) asked.remove().catch(() => undefined);
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", stop, { once: true });
      if (signal.aborted) stop();
    });
    return await Promise.race([asked.waitUntilFinished(callEvents), stopped]);
  }

  async function takeTurn(jobs: readonly Job<Message>[], signal: AbortSignal): Promise<string> {
    const messages = jobs.map(({ data }) => data);
    const [last, { tenantId = "" } = {}] = [jobs.at(-1), messages[0]];
    const prompt = { tenantId, texts: messages.map(({ text }) => text) };
    return await onTurn(messages, () => call(prompt, `${last?.queueName}-${last?.id}`, signal));
  }

  /** The same resource in both: a conversation has one turn at a time, whether its user types or speaks. */
  const perConversation = { connection, concurrency: TURNS, key: "conversationId", resource: "conversation:" } as const;
  const workers = [
    new ExclusiveWorker<Message>(
      "chats",
      async (_job, _token, signal, { batch }) => await takeTurn(batch.jobs, signal),
      { ...perConversation, whenBusy: "merge", perKey: { batch: { size: 20, wait: typingMs } } },
    ),
    new ExclusiveWorker<Message>("voices", async (job, _token, signal) => await takeTurn([job], signal), {
      ...perConversation,
      whenBusy: "interrupt",
    }),
  ];

  return {
    chats,
    voices,
    async [Symbol.asyncDispose](): Promise<void> {
      await Promise.all(workers.map(async (worker) => await worker.close()));
      await caller.close();
      await Promise.all([chats, voices, calls, callEvents].map(async (each) => await each.close()));
    },
  };
}
