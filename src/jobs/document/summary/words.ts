/**
 * Words, and which of them carry grammar and not content: a little knowledge of a few languages, which the weights of
 * words have to replace in all others. Pure.
 */
import { stem } from './stem.js';

/** The languages with a list of common words; `other` is any other one. */
export type Language = keyof typeof COMMON_WORDS | 'other';

/** In running text of its language one word in three is in the list; in that of another one in twenty. */
const MIN_COMMON_SHARE = 0.15;
/** In a language without a list, words this short are taken for common ones. */
const SHORT_WORD = 3;

const LETTERS = /[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*/gu;
/** Scripts that put no space between words: only a dictionary can tell them apart. */
const UNSPACED = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmr}\p{sc=Mymr}]/u;
const segmenter = new Intl.Segmenter('en', { granularity: 'word' });

export function isUnspaced(text: string): boolean {
  return UNSPACED.test(text);
}

/** The words of a text, in order. */
export function wordsOf(text: string): string[] {
  if (!isUnspaced(text)) return text.match(LETTERS) ?? [];
  const words: string[] = [];
  for (const { segment, isWordLike } of segmenter.segment(text)) if (isWordLike === true) words.push(segment);
  return words;
}

/** A word as it is compared: small letters, one kind of apostrophe. */
export function plainWord(word: string): string {
  return word.toLowerCase().replaceAll('’', "'");
}

/** The language most of these words are common in. */
export function languageOf(words: readonly string[]): Language {
  let best: Language = 'other';
  let bestShare = MIN_COMMON_SHARE;
  for (const [language, common] of COMMON) {
    const share = words.filter((word) => common.has(plainWord(word))).length / Math.max(1, words.length);
    if (share > bestShare) {
      best = language;
      bestShare = share;
    }
  }
  return best;
}

/** What makes terms of the words of one document. Stems are remembered: a book has few words, often. */
export interface Lexicon {
  readonly language: Language;
  /** What stands for the word when words are compared, or null when it has no content. */
  term(word: string): string | null;
}

export function lexiconFor(language: Language): Lexicon {
  const common = COMMON.get(language);
  const terms = new Map<string, string | null>();
  const make = (plain: string): string | null => {
    if (common === undefined ? plain.length <= SHORT_WORD && !isUnspaced(plain) : common.has(plain)) return null;
    if (plain.length < 2 && !isUnspaced(plain)) return null;
    return language === 'en' ? stem(plain) : plain;
  };
  return {
    language,
    term: (word) => {
      const plain = plainWord(word);
      let term = terms.get(plain);
      if (term === undefined) {
        term = make(plain);
        terms.set(plain, term);
      }
      return term;
    },
  };
}

const COMMON_WORDS = {
  en:
    "a about above after again against all almost along also although always am among an and another any are aren't as at " +
    "be because been before being below between both but by can can't cannot could couldn't did didn't do does doesn't " +
    "doing don't done down during each either else enough ever every few for from further had hadn't has hasn't have " +
    "haven't having he her here hers herself him himself his how however i if in into is isn't it it's its itself just " +
    'least less let like made make many may me might more most much must my myself near neither never no nor not now of ' +
    'off often on once one only or other others otherwise our ours ourselves out over own per perhaps quite rather same ' +
    "shall she should shouldn't since so some still such than that that's the their theirs them themselves then there " +
    'therefore these they this those though through thus to together too toward two under until up upon us use used ' +
    "using very was wasn't we were weren't what when where whether which while who whom whose why will with within " +
    "without won't would wouldn't yet you your yours yourself yourselves",
  de:
    'aber alle allem allen aller alles als also am an auch auf aus bei bereits bis bzw da dabei dadurch daher damit dann ' +
    'das dass daß dem den denn der des dessen die dies diese diesem diesen dieser dieses doch dort du durch ein eine ' +
    'einem einen einer eines er es etwa euch für gegen genau gibt gilt hat hatte hatten haben heißen heißt hier hinter ich ihm ihn ' +
    'ihnen ihr ihre ihrem ihren ihrer im in indem ins ist ja jede jedem jeden jeder jedes jedoch kann kein keine keinen ' +
    'können könnte man mehr mit muss müssen nach nicht noch nun nur ob oder ohne schon sei seien sein seine seinem seinen ' +
    'seiner seit sich sie sind so solche soll sollte sondern sowie über um und uns unter vom von vor war waren was weil ' +
    'wenn werden wenn wie wieder wird wir wo wurde wurden zu zum zur zwar zwischen',
  fr:
    "à afin ai ainsi alors après au aucun aussi autre autres aux avait avant avec avoir c'est car ce ceci cela celle celui " +
    "ces cet cette ceux chaque comme comment d'un d'une dans de depuis des donc dont du elle elles en encore entre est et " +
    'être étaient était eux fait faire fois font il ils je jusque la là le les leur leurs lui mais même mes moins ne non ' +
    "nos notre nous on ont ou où par parce pas pendant peu peut peuvent plus pour pouvoir qu'il qu'elle qu'un quand que " +
    "quel quelle qui s'est sa sans se sera ses seulement si soit son sont sous sur ta tandis te tous tout toute toutes " +
    'très tu un une vers vos votre vous y',
  es:
    'a al algo algunas algunos ante antes aquel así aun aunque cada como con contra cual cuando de del desde donde dos ' +
    'durante e el él ella ellas ellos en entre era eran es esa ese eso esta está están este esto estos estas fue fueron ' +
    'ha había han hasta hay la las le les lo los más me mediante mi mientras muy ni no nos o otra otras otro otros para ' +
    'pero poco por porque pues que qué quien se sea según ser si sí sido sin sobre son su sus también tan tanto te tiene ' +
    'tienen toda todas todo todos tras un una uno unos y ya',
  it:
    'a ad agli ai al alla alle allo anche ancora avere che chi ci col come con contro così cui da dai dal dalla dalle ' +
    "degli dei del dell della delle dello di dopo dove due e è ed era erano essere fra fu gli ha hanno i il in io l'ha la " +
    'le lei lo loro lui ma mentre mi molto ne negli nei nel nella nelle nello no noi non o ogni per perché però più poi ' +
    'prima può qual quale quando quanto quella quelle quelli quello questa queste questi questo qui sarà se si sia sono ' +
    'sua sue sui sul sulla sulle suo suoi tra tutti tutto un una uno',
  nl:
    'aan al alle als andere ben bij daar dan dat de deze die dit doch door een en er geen had hadden heb hebben heeft het ' +
    'hier hij hoe hun ik in is ja je kan kunnen maar me meer men met mijn moet na naar niet niets nog nu of om omdat ' +
    'onder ons ook op over te tegen toch toen tot u uit van veel voor want waren was wat werd werden wie wij worden wordt ' +
    'zal ze zich zij zijn zo zonder zou',
  pt:
    'à ao aos as às até cada com como contra da das de dela dele depois desde do dos e é ela elas ele eles em entre era ' +
    'essa essas esse esses esta está estão estas este estes eu foi foram há isso isto já lhe mais mas mesmo meu muito na ' +
    'não nas nem no nos nós o os ou outra outro outros para pela pelas pelo pelos pode por porque qual quando que quem ' +
    'são se sem ser seu seus sob sobre sua suas também te tem têm ter todos tudo um uma umas uns você',
} as const;

const COMMON: ReadonlyMap<Language, ReadonlySet<string>> = new Map(
  Object.entries(COMMON_WORDS).map(([language, list]) => [language as Language, new Set<string>(list.split(' '))]),
);
