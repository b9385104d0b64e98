import { behavesLikeBullMQ } from "./support/behaviour.ts";

behavesLikeBullMQ();
