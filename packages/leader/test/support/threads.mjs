/** Preloaded with --import: on Node 20 worker threads do not inherit tsx's loader, so each registers its own. */
import { isMainThread } from "node:worker_threads";
import { register } from "tsx/esm/api";

if (!isMainThread) register();
