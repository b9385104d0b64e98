/** A live page of locks, elections, schedules and keys, to be mounted in an application. */
export { type NodeListener, nodeListener } from "./node-listener.ts";
export { createPage, type NoteOptions, type Page, type PageOptions } from "./page.ts";
