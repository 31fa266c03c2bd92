/** A reason: its cause and its first lines, the whole on a click, and a button that copies it. */
import { useEffect, useId, useLayoutEffect, useRef, useState, type RefObject } from "react";
import { causeOf } from "./cause";
import { CopyIcon } from "./Icons";

/** A text that fits beside its button. */
const SHORT_CHARS = 160;

export function Reason({ text, of }: { text: string; of: string }) {
  const [isWhole, setWhole] = useState(false);
  const id = useId();
  const box = useRef<HTMLParagraphElement>(null);
  const isCut = useIsCut(box, text);
  const isLong = isWhole || isCut;
  // By its length: if the place of the buttons depended on what fits, the width of the text would
  // change with it, and so what fits.
  const isShort = text.length <= SHORT_CHARS && !text.includes("\n");
  const [first = "", ...others] = text.split("\n");
  const cause = causeOf(text);
  const kind = cause ? "reason with-cause" : isShort ? "reason single" : "reason";
  return (
    <div className={kind}>
      {cause && <p className="reason-cause">{cause}</p>}
      <p id={id} ref={box} className={isWhole ? "reason-text" : "reason-text short"}>
        <span className="reason-first">{first}</span>
        {others.length > 0 && <span className="reason-others">{others.join("\n")}</span>}
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

/** Whether a part of the text is out of sight: how much fits depends on the width. */
function useIsCut(box: RefObject<HTMLElement | null>, text: string): boolean {
  const [isCut, setCut] = useState(false);
  useLayoutEffect(() => {
    const parts = [...(box.current?.children ?? [])];
    const look = () => setCut(parts.some((part) => part.scrollHeight > part.clientHeight + 1));
    look();
    const watcher = new ResizeObserver(look);
    for (const part of parts) watcher.observe(part);
    return () => watcher.disconnect();
  }, [box, text]);
  return isCut;
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
