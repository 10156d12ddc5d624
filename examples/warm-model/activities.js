/**
 * A model that takes long to load stays in the memory of the worker's executor between the steps of one session.
 * The model here is small, it completes a line word by word from what it has read; loading it is what takes its time.
 */
import { currentSession, currentWorker } from 'temporal-atlas/activity';

const TEXT =
  'the tide sets the working day and the office prints the times a month ahead and the harbour master gives the berth';

/** Loads the model into this session's memory. Called again it does nothing: a retry need not load twice. */
export async function loadModel(loadMs) {
  const { memory } = currentSession();
  if (!memory.has('model')) memory.set('model', await Model.load(loadMs));
  return { worker: currentWorker().name };
}

/** Answers with the model that is in memory. There is none only if loadModel was not called in this session. */
export async function complete(word, count) {
  return currentSession().memory.get('model').complete(word, count);
}

class Model {
  static async load(loadMs) {
    await new Promise((resolve) => setTimeout(resolve, loadMs));
    const next = new Map();
    const words = TEXT.split(' ');
    for (const [index, word] of words.entries()) next.set(word, [...(next.get(word) ?? []), words[index + 1] ?? 'the']);
    return new Model(next);
  }

  constructor(next) {
    this.next = next;
  }

  complete(word, count) {
    const words = [word];
    while (words.length < count) words.push(this.next.get(words.at(-1))?.[0] ?? 'the');
    return words.join(' ');
  }

  /** Called when the session ends: here a model gives its memory on a graphics card back. */
  [Symbol.dispose]() {
    this.next.clear();
  }
}
