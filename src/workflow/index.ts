/** Placeholder signature until the owner lands; see the exports below. */
export {};
