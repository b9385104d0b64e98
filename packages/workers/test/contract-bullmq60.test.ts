/** The contract with BullMQ 6.0.11: everything that the lane relies on, shown by what users see. */
import { vi } from "vitest";
import { behavesLikeBullMQ } from "./support/behaviour.ts";

vi.mock("bullmq", async () => await import("bullmq60"));

behavesLikeBullMQ(["path"]);
