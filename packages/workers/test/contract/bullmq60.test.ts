/** The contract with BullMQ 6.0.11. */
import { vi } from "vitest";
import { testContract } from "./contract.ts";

vi.mock("bullmq", async () => await import("bullmq60"));

testContract(["path"]);
