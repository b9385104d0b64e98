/** The contract with BullMQ 6.4.0. */
import { vi } from "vitest";
import { testContract } from "./contract.ts";

vi.mock("bullmq", async () => await import("bullmq64"));

testContract(["path"]);
