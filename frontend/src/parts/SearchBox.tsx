/** The box that searches what a view lists; the key `/` goes there. */
import { useEffect, useRef, useState } from "react";
import { SearchIcon } from "./Icons";
import "./SearchBox.css";

/** Longest search that the server takes. */
export const SEARCH_MAX = 200;
/** Keys that follow each other faster are sent together. */
const TYPED_MS = 50;

interface Props {
  value: string;
  onSearch: (search: string) => void;
  label?: string;
}

export function SearchBox({ value, onSearch, label = "Search tables" }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState<string | null>(null); // what is not in the address yet
  useEffect(() => {
    if (typed === null) return;
    const timer = setTimeout(() => {
      if (typed !== value) onSearch(typed);
      setTyped(null);
    }, TYPED_MS);
    return () => clearTimeout(timer);
  }, [typed, value, onSearch]);

  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const isTyping = target.matches("input, textarea, select") || target.isContentEditable;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", focus);
    return () => document.removeEventListener("keydown", focus);
  }, []);

  return (
    <div className="search">
      <SearchIcon />
      <input
        ref={input}
        type="search"
        maxLength={SEARCH_MAX}
        aria-label={label}
        aria-keyshortcuts="/"
        placeholder={label}
        autoComplete="off"
        spellCheck={false}
        value={typed ?? value}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          if (event.currentTarget.value) setTyped("");
          else event.currentTarget.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
