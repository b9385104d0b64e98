/** The contract with BullMQ 6.2.2. */
import { vi } from "vitest";
import { testContract } from "./contract.ts";

vi.mock("bullmq", async () => await import("bullmq62"));

testContract(["path"]);
