/** Conversations of four tenants with one agent: bursts, an interrupt, and a tenant with much more to say than the others. */
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { NotRun } from "@x/workers";
import { type Job, QueueEvents } from "bullmq";
import { Redis } from "ioredis";
import { type Message, startAgent } from "./agent.ts";
import { Provider } from "./provider.ts";

const HOT_CONVERSATIONS = 40;
const QUIET_TENANTS = ["north", "south", "west"];
const BURST = ["Hello.", "My order did not come.", "It has the number 7.", "Where is it?", "Hello?"];
const TYPING_MS = 300;

export interface Report {
  readonly messages: number;
  /** Messages that were answered, each once and in order. */
  readonly answered: number;
  readonly turns: number;
  readonly interrupted: number;
  /** Calls that the provider refused with 429, and that were made again. */
  readonly refused: number;
  /** Turns of a conversation that ran beside another one. */
  readonly overlaps: number;
  readonly failed: number;
  /** Turns of the hot tenant that came after the last one of the quiet tenants. */
  readonly hotTurnsLast: number;
}

/** `speed`: how much faster than real ones the model and its users are. */
export async function run(redisUrl: string, speed = 20): Promise<Report> {
  const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
  const provider = new Provider(speed);
  const turns: (readonly Message[])[] = [];
  const running = new Set<string>();
  let overlaps = 0;
  const agent = startAgent({
    connection,
    provider,
    typingMs: TYPING_MS / speed,
    onTurn: async (messages, answer) => {
      const conversationId = messages[0]?.conversationId ?? "";
      if (running.has(conversationId)) overlaps += 1;
      running.add(conversationId);
      try {
        const text = await answer();
        turns.push(messages);
        return text;
      } finally {
        running.delete(conversationId);
      }
    },
  });
  const { chats, voices } = agent;
  const events = [chats, voices].map((queue) => new QueueEvents(queue.name, { connection }));
  for (const each of [...events, chats, voices]) each.setMaxListeners(0); // some for each job that is waited for

  const message = (tenantId: string, conversation: number, text: string): { name: string; data: Message } => ({
    name: "message",
    data: { tenantId, conversationId: `${tenantId}-${conversation}`, text },
  });
  try {
    const jobs: Job<Message>[] = await chats.addBulk([
      ...Array.from({ length: HOT_CONVERSATIONS }, (_, i) => message("hot", i, "Sum up this document.")),
      ...QUIET_TENANTS.flatMap((tenant) => BURST.map((text) => message(tenant, 1, text))),
    ]);
    const story = message("north", 2, "Tell me the Odyssey, in 20000 words.");
    const told = await voices.add(story.name, story.data);
    while (!running.has(story.data.conversationId)) await delay(1);
    jobs.push(told, await voices.add("message", message("north", 2, "No, just the end.").data));

    const ends = await Promise.allSettled(
      jobs.map(async (job): Promise<unknown> => {
        return await job.waitUntilFinished(events[job.queueName === "chats" ? 0 : 1] as QueueEvents);
      }),
    );
    const isInterrupted = (value: unknown): boolean => (value as Partial<NotRun> | null)?.notRun === "interrupted";
    const isHot = turns.map(([first]) => first?.tenantId === "hot");
    return {
      messages: jobs.length,
      answered: countAnswered(turns.flat(), jobs),
      turns: turns.length,
      interrupted: ends.filter((end) => end.status === "fulfilled" && isInterrupted(end.value)).length,
      refused: provider.refused,
      overlaps,
      failed: ends.filter(({ status }) => status === "rejected").length,
      hotTurnsLast: turns.length - 1 - isHot.lastIndexOf(false),
    };
  } finally {
    await agent[Symbol.asyncDispose]();
    await Promise.all(events.map(async (each) => await each.close()));
    connection.disconnect();
  }
}

/** Whatever is in the place of the message that was sent is not counted. */
function countAnswered(answered: readonly Message[], sent: readonly Job<Message>[]): number {
  let count = 0;
  for (const conversationId of new Set(sent.map(({ data }) => data.conversationId))) {
    const isOf = (message: Message): boolean => message.conversationId === conversationId;
    const texts = sent.filter(({ data }) => isOf(data)).map(({ data }) => data.text);
    const own = answered.filter(isOf).map(({ text }) => text);
    // What was interrupted stands before what has interrupted it.
    count += own.filter((text, i) => text === texts[i + texts.length - own.length]).length;
  }
  return count;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const report = await run(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379", Number(process.env["SPEED"] ?? 20));
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}
