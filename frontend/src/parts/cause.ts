/** The innermost cause in the error of a JVM: what a person has to read of it. */

/** `SparkException: `, `java.io.IOException: `, `OutOfMemoryError: `. */
const THROWN = /(?<![\w.])(?:[a-z_]\w*\.)*[A-Z]\w*(?:Exception|Error): /g;
/** What the client of a cloud adds to find the request in its logs: the whole text has it. */
const REQUEST = / \([^()]*Request ID: [^()]*\)$/;
/** A shorter text is read at once. */
const LONG_CHARS = 200;
/** A cause that is longer is most of the text. */
const MOST_OF_IT = 0.6;

/** The message of the last exception that a long text names; null if it names no such part. */
export function causeOf(reason: string): string | null {
  if (reason.length <= LONG_CHARS) return null;
  const last = [...reason.matchAll(THROWN)].at(-1);
  if (!last) return null;
  const [line = ""] = reason.slice(last.index + last[0].length).split("\n");
  const cause = line.trim().replace(REQUEST, "");
  return cause && cause.length <= reason.length * MOST_OF_IT ? cause : null;
}
