/** Text with the commands between backticks as code; a single backtick stays one. */
export function Commands({ text }: { text: string }) {
  return text
    .split(/`([^`\n]+)`/)
    .map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : part));
}
