/** The contract with BullMQ 5.81.5: everything that the lane relies on, shown by what users see. */
import { vi } from "vitest";
import { behavesLikeBullMQ } from "./support/behaviour.ts";

vi.mock("bullmq", async () => await import("bullmq5"));

behavesLikeBullMQ(["path"]);
