/** Does nothing. KEYS: those that the user must have the rights to, which the server looks at before it runs a script. Replies 1. */
import { defineScript, type NodeScript } from "../nodes/node.ts";

export const rightsScript: NodeScript = defineScript("rights", "return 1");
