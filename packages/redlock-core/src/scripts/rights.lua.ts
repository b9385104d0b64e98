/**
 * Does nothing, and replies 1. KEYS are those that the user must have the rights to, which the server looks at before
 * it runs a script.
 */
import { defineScript, type NodeScript } from "../nodes/node.ts";

export const rightsScript: NodeScript = defineScript("rights", "return 1");
