/** The default of the option `random`: randomness spreads pauses and tells two starts of one process apart; safety rests on neither. */
export const systemRandom: () => number = () => Math.random();
