/** The first page, as VitePress' layout for it wants it. */
export const home = {
  layout: "home",
  hero: {
    name: "@x",
    text: "Locks, leaders and exclusive workers on Redis",
    tagline: "For Node.js teams that run several processes, and must not do a thing twice.",
    actions: [
      { theme: "brand", text: "Guides", link: "/README" },
      { theme: "alt", text: "How we know it works", link: "/how-we-know-it-works" },
    ],
  },
  features: [
    {
      title: "Two jobs charged one account",
      details: "BullMQ workers that process one job per key at a time, in order, on unchanged queues and producers.",
      link: "/workers/exclusive-jobs",
    },
    {
      title: "A cron task ran twice",
      details: "One replica runs each tick, or leads until it stops.",
      link: "/problems/cron-ran-twice",
    },
    {
      title: "A critical section must hold across processes",
      details: "Locks on one or several Redis nodes, with fencing tokens and fair waiting.",
      link: "/packages/redlock-core",
    },
    {
      title: "A lock was lost in the middle",
      details: "What your code then does, tested in milliseconds and without a Redis.",
      link: "/testing",
    },
  ],
};
