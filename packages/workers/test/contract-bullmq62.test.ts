/** The contract with BullMQ 6.2.2: everything that the lane relies on, shown by what users see. */
import { vi } from "vitest";
import { behavesLikeBullMQ } from "./support/behaviour.ts";

vi.mock("bullmq", async () => await import("bullmq62"));

behavesLikeBullMQ(["path"]);
