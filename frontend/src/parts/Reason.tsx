/** A reason: its first lines, the whole on a click, and a button that copies it. */
import { useEffect, useId, useState } from "react";
import { CopyIcon } from "./Icons";

const SHORT_CHARS = 180;
const SHORT_LINES = 2;

export function Reason({ text, of }: { text: string; of: string }) {
  const [isWhole, setWhole] = useState(false);
  const id = useId();
  const lines = text.split("\n");
  const isLong = text.length > SHORT_CHARS || lines.length > SHORT_LINES;
  return (
    <div className={isLong ? "reason" : "reason single"}>
      <p id={id} className={isWhole || !isLong ? "reason-text" : "reason-text short"}>
        {text}
      </p>
      <div className="reason-tools">
        {isLong && (
          <button
            type="button"
            className="plain"
            aria-expanded={isWhole}
            aria-controls={id}
            aria-label={`${isWhole ? "Show less" : "Show the whole reason"}: ${of}`}
            onClick={() => setWhole(!isWhole)}
            onKeyDown={(event) => {
              if (event.key === "Escape") setWhole(false);
            }}
          >
            {isWhole ? "Show less" : "Show the whole reason"}
          </button>
        )}
        <CopyButton text={text} label={`Copy the reason: ${of}`} />
      </div>
    </div>
  );
}

const COPIED_MS = 2_000;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), COPIED_MS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  return (
    <>
      <button
        type="button"
        className="plain"
        aria-label={label}
        onClick={() => void copy(text).then(setCopied)}
      >
        <CopyIcon /> {isCopied ? "Copied" : "Copy"}
      </button>
      <span role="status" className="hidden">
        {isCopied ? "Copied" : ""}
      </span>
    </>
  );
}

/** Over plain HTTP browsers have no clipboard, except on this machine. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
