/**
 * The parts that the first view does not need: an opened queue, the dialog, search results, the time line as a table.
 * These parts are a file of their own.
 */
export { Dialog } from "./dialog.tsx";
export { Happened } from "./happened.tsx";
export { Outboxes } from "./outboxes.tsx";
export { QueuePage } from "./queue-view.tsx";
export { Found } from "./search.tsx";
export { Semaphores } from "./semaphores.tsx";
