/** Actions with confirmation and answer: the dialog, the toasts, and the buttons that ask. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import {
  createContext,
  useCallback,
  useContext,
  useEffect,
  useId,
  useMemo,
  useRef,
  useState,
  type ReactNode,
} from "react";
import { noteChanged } from "../api/changed";
import { api, dataOf, type Schemas, type Table } from "../api/client";
import {
  actionsFor,
  describe,
  LABELS,
  subjectOf,
  wordsOf,
  type Action,
  type Manner,
  type TableActionKind,
} from "./actionTexts";
import { Toasts, type NewToast, type Toast } from "./ActionToasts";
import { Commands } from "./Commands";
import "./Actions.css";

type Answer = Schemas["Answer"];

interface Actions {
  /** Opens the dialog that asks for confirmation. */
  ask: (action: Action) => void;
  /** Why this user may not act; null if they may. */
  whyNot: string | null;
  /** Why this user may not tier a table now, which may need another right. */
  whyNotTier: string | null;
  /** The subject that the server works on just now. */
  busyWith: string | null;
  manner: Manner;
}

const Context = createContext<Actions | null>(null);

/** Buttons, menus and keys ask by it. Needs an `ActionsProvider` above. */
export function useActions(): Actions {
  const found = useContext(Context);
  if (!found) throw new Error("useActions needs an ActionsProvider above it");
  return found;
}

/** Why this user may not do it; null if they may. */
export function whyNotDo({ whyNot, whyNotTier }: Actions, action: Action): string | null {
  const ofTable = action.kind === "drop" ? null : action.table.why_not_act;
  return (action.kind === "tier" ? whyNotTier : whyNot) ?? ofTable ?? null;
}

const UNTIL_KNOWN: Manner = { tier_now: "request", is_fluss: false };
/** The server reads the cluster anew after an action: the page looks again after these times. */
const LOOK_AGAIN_MS = [800, 2_500, 6_000];

/** Holds the dialog and the toasts: once, around all views. */
export function ActionsProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const overview = useQuery({
    queryKey: ["overview"],
    queryFn: () => dataOf(api.GET("/api/v1/overview")),
  });
  const [asked, setAsked] = useState<Action | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [toasts, setToasts] = useState<Toast[]>([]);
  const nextId = useRef(1);
  const timers = useRef(new Set<number>());

  useEffect(() => {
    const running = timers.current;
    return () => running.forEach((timer) => window.clearTimeout(timer));
  }, []);

  const add = useCallback((toast: NewToast) => {
    const id = nextId.current++;
    setToasts((all) => [...withRoom(all), { ...toast, id }]);
  }, []);
  const close = useCallback((id: number) => setToasts((all) => all.filter((t) => t.id !== id)), []);

  const refresh = useCallback(() => {
    void queries.invalidateQueries();
    for (const ms of LOOK_AGAIN_MS) {
      const timer = window.setTimeout(() => {
        timers.current.delete(timer);
        void queries.invalidateQueries();
      }, ms);
      timers.current.add(timer);
    }
  }, [queries]);

  const confirm = useCallback(
    async (action: Action) => {
      setBusy(true);
      try {
        const answer = await send(action);
        add({ kind: "done", message: answer.message, url: answer.url ?? null });
        if (action.kind !== "drop") noteChanged(action.table.path, answer.changed_ms);
        refresh();
      } catch (error) {
        add({
          kind: "failed",
          title: `${LABELS[action.kind]} of ${subjectOf(action)} failed`,
          message: error instanceof Error ? error.message : String(error),
          again: () => setAsked(action),
        });
      } finally {
        setBusy(false);
        setAsked(null);
      }
    },
    [add, refresh],
  );

  const data = overview.data;
  const actions = useMemo<Actions>(
    () => ({
      ask: setAsked,
      whyNot: whyNot(data),
      whyNotTier: whyNot(data) ?? whyNotTier(data),
      busyWith: isBusy && asked ? subjectOf(asked) : null,
      manner: data ?? UNTIL_KNOWN,
    }),
    [data, isBusy, asked],
  );
  return (
    <Context value={actions}>
      {children}
      <Confirmation
        action={asked}
        manner={data ?? UNTIL_KNOWN}
        isBusy={isBusy}
        onConfirm={(action) => void confirm(action)}
        onCancel={() => setAsked(null)}
      />
      <Toasts toasts={toasts} onClose={close} />
    </Context>
  );
}

const TOASTS_MAX = 4;

/** Leaves out the oldest successes; a failure stays until it is closed. */
function withRoom(toasts: Toast[]): Toast[] {
  let over = toasts.length + 1 - TOASTS_MAX;
  return toasts.filter((each) => each.kind === "failed" || over-- <= 0);
}

function whyNot(overview: Schemas["Overview"] | undefined): string | null {
  if (!overview) return "It is not known yet whether you may do this.";
  if (overview.may_act) return null;
  return overview.why_not ?? "You may only look at this page.";
}

function whyNotTier(overview: Schemas["Overview"] | undefined): string | null {
  if (overview?.may_tier_now !== false) return null;
  return overview.why_not_tier_now ?? "You may not tier tables now.";
}

function send(action: Action): Promise<Answer> {
  if (action.kind === "drop") {
    return dataOf(api.POST("/api/v1/leases/drop", { body: { lease_id: action.leaseId } }));
  }
  const path = { database: action.table.database, table: action.table.table };
  const call = { params: { path } };
  switch (action.kind) {
    case "tier":
      return dataOf(api.POST("/api/v1/tables/{database}/{table}/tier", call));
    case "retry":
      return dataOf(api.POST("/api/v1/tables/{database}/{table}/retry", call));
    case "pause":
      return dataOf(api.POST("/api/v1/tables/{database}/{table}/pause", call));
    case "resume":
      return dataOf(api.POST("/api/v1/tables/{database}/{table}/resume", call));
    case "compact":
      return dataOf(api.POST("/api/v1/tables/{database}/{table}/compact", call));
  }
}

interface ConfirmationProps {
  action: Action | null;
  manner: Manner;
  isBusy: boolean;
  onConfirm: (action: Action) => void;
  onCancel: () => void;
}

function Confirmation({ action, manner, isBusy, onConfirm, onCancel }: ConfirmationProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const confirmButton = useRef<HTMLButtonElement>(null);
  const cancelButton = useRef<HTMLButtonElement>(null);
  const words = action && wordsOf(action, manner);
  const isDangerous = words?.isDangerous ?? false;
  const title = useId();
  const text = useId();
  const isOpen = action !== null;

  useEffect(() => {
    const element = dialog.current;
    if (!element || element.open === isOpen) return;
    if (isOpen) {
      element.showModal(); // keeps the focus inside, and gives it back on close
      // an Enter that is held must not confirm what cannot be undone
      (isDangerous ? cancelButton : confirmButton).current?.focus();
    } else element.close();
  }, [isOpen, isDangerous]);

  return (
    <dialog
      ref={dialog}
      className="ask"
      aria-labelledby={title}
      aria-describedby={text}
      onCancel={(event) => {
        event.preventDefault(); // the state closes it
        if (!isBusy) onCancel();
      }}
    >
      {action && words && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (!isBusy) onConfirm(action);
          }}
        >
          <h2 id={title}>{words.title}</h2>
          <div id={text}>
            {action.kind === "drop" && action.holder && action.holder !== action.leaseId && (
              <p>
                Held by <strong>{action.holder}</strong>.
              </p>
            )}
            {words.says.map((each) => (
              <p key={each}>
                <Commands text={each} />
              </p>
            ))}
          </div>
          <div className="ask-buttons">
            <button
              ref={cancelButton}
              type="button"
              className="button"
              onClick={onCancel}
              disabled={isBusy}
            >
              Cancel
            </button>
            <button
              ref={confirmButton}
              type="submit"
              className={words.isDangerous ? "button danger" : "button primary"}
              aria-disabled={isBusy}
              aria-busy={isBusy}
            >
              {isBusy ? words.doing : words.confirm}
            </button>
          </div>
        </form>
      )}
    </dialog>
  );
}

/** One button that asks, and says what it does. A user who may not act reads why instead. */
export function ActionButton({ action, className }: { action: Action; className?: string }) {
  const actions = useActions();
  const { ask, busyWith, manner } = actions;
  const whyNot = whyNotDo(actions, action);
  const why = useId();
  const does = describe(action.kind, manner);
  const label = LABELS[action.kind];
  const isBusy = busyWith === subjectOf(action);
  return (
    <>
      <button
        type="button"
        className={className ?? "button"}
        aria-label={`${label}: ${subjectOf(action)}`}
        aria-disabled={whyNot !== null || isBusy}
        aria-describedby={whyNot === null ? undefined : why}
        aria-description={whyNot === null ? does : undefined}
        title={whyNot ?? does}
        onClick={(event) => {
          event.stopPropagation();
          if (whyNot === null && !isBusy) ask(action);
        }}
      >
        {label}
      </button>
      {whyNot !== null && (
        <span id={why} hidden>
          {whyNot}
        </span>
      )}
    </>
  );
}

/** The buttons of a table in its state; `only` limits them. */
export function TableActions({
  table,
  only,
}: {
  table: Table;
  only?: TableActionKind[] | undefined;
}) {
  const whyNot = useActions().whyNot ?? table.why_not_act ?? null;
  const isUrgent = table.paused || (table.failures ?? 0) > 0;
  const kinds = actionsFor(table).filter((kind) => !only || only.includes(kind));
  return (
    <div className="actions" role="group" aria-label={`Actions of ${table.path}`}>
      {kinds.map((kind, i) => (
        <ActionButton
          key={kind}
          action={{ kind, table }}
          className={i === 0 && isUrgent && whyNot === null ? "button primary" : "button"}
        />
      ))}
    </div>
  );
}
