/** The contract with BullMQ 5.66.2, the newest release with the oldest texts that are supported. */
import { vi } from "vitest";
import { testContract } from "./contract.ts";

vi.mock("bullmq", async () => await import("bullmq566"));

testContract(["path"]);
