/** The contract with BullMQ 6.4.0: everything that the lane relies on, shown by what users see. */
import { vi } from "vitest";
import { behavesLikeBullMQ } from "./support/behaviour.ts";

vi.mock("bullmq", async () => await import("bullmq64"));

behavesLikeBullMQ(["path"]);
