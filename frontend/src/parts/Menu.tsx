/** A button with a menu below it. Arrow keys walk, Escape closes. */
import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

interface MenuItem {
  label: string;
  /** What a reader hears; the label if absent. */
  name?: string;
  /** What it does, in one sentence. */
  does?: string;
  onChoose: () => void;
  isDisabled?: boolean;
  isDanger?: boolean;
}

interface Props {
  label: string;
  button: ReactNode;
  items: MenuItem[];
  /** Below the items: why they are disabled. */
  note?: string | null;
}

export function Menu({ label, button, items, note }: Props) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  const id = useId();

  useEffect(() => {
    if (!isOpen) return;
    const leave = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("focusin", leave);
    buttonsOf(root.current)[0]?.focus();
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("focusin", leave);
    };
  }, [isOpen]);

  function close() {
    setOpen(false);
    opener.current?.focus();
  }

  function walk(event: KeyboardEvent) {
    if (!isOpen) return;
    const all = buttonsOf(root.current);
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const to = {
      ArrowDown: (at + 1) % all.length,
      ArrowUp: (at - 1 + all.length) % all.length,
      Home: 0,
      End: all.length - 1,
    }[event.key];
    if (event.key === "Escape") close();
    else if (to !== undefined) all[to]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return (
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions -- keys of the menu inside
    <div className={isOpen ? "menu open" : "menu"} ref={root} onKeyDown={walk}>
      <button
        ref={opener}
        type="button"
        className="plain square"
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        {button}
      </button>
      {isOpen && (
        <div className="menu-items" role="menu" id={id} aria-label={label}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              className={item.isDanger ? "danger" : undefined}
              aria-label={item.name}
              title={item.does}
              aria-description={item.isDisabled && note ? undefined : item.does}
              aria-disabled={item.isDisabled}
              aria-describedby={item.isDisabled && note ? `${id}-note` : undefined}
              onClick={() => {
                if (item.isDisabled) return;
                close();
                item.onChoose();
              }}
            >
              {item.label}
            </button>
          ))}
          {note && (
            <p id={`${id}-note`} className="menu-note">
              {note}
            </p>
          )}
        </div>
      )}
    </div>
  );
}

function buttonsOf(root: HTMLElement | null): HTMLButtonElement[] {
  return [...(root?.querySelectorAll<HTMLButtonElement>('[role="menuitem"]') ?? [])];
}
