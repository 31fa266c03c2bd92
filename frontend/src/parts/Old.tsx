/** What a view says when it was not read anew: since when it is old, and why, and only once. */
import { useQuery } from "@tanstack/react-query";
import { api, dataOf, type Schemas } from "../api/client";
import { Banner } from "./Banner";
import { Commands } from "./Commands";
import { Ago } from "./Times";

/** That the server told what it had read before. The head of the page says why the cluster is away. */
export function Old({ old, what }: { old: Schemas["Old"] | null | undefined; what: string }) {
  const { data } = useHead();
  if (!old) return null;
  if (data?.reading.error)
    return (
      <p className="quiet">
        {what} as read <Ago ms={old.read_ms} />.
      </p>
    );
  return (
    <Banner
      kind="warning"
      aside={
        <>
          Shown is what was read <Ago ms={old.read_ms} />.
        </>
      }
    >
      <strong>{what} could not be read now.</strong>{" "}
      <span className="banner-reason">
        <Commands text={old.why} />
      </span>
    </Banner>
  );
}

/** That the page could not ask again, and shows an earlier answer. */
export function NotAgain({ error, what }: { error: Error | null; what: string }) {
  const isTold = useIsTold(error);
  if (!error || isTold) return null;
  return (
    <Banner kind="warning">
      {what} could not be read again: <Commands text={error.message} />
    </Banner>
  );
}

/** Whether the head of the page says this already: the server is gone, or one is not logged in. */
export function useIsTold(error: Error | null): boolean {
  const head = useHead();
  return error !== null && head.error?.message === error.message;
}

/** What the head of the page has read: it reads it, and not who asks here. */
function useHead() {
  return useQuery({
    queryKey: ["overview"],
    queryFn: () => dataOf(api.GET("/api/v1/overview")),
    enabled: false,
  });
}
