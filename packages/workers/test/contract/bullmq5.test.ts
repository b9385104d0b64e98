/** The contract with BullMQ 5.81.5. */
import { vi } from "vitest";
import { testContract } from "./contract.ts";

vi.mock("bullmq", async () => await import("bullmq5"));

testContract(["path"]);
