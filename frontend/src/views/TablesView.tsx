import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, dataOf } from "../api/client";

export function TablesView() {
  const { data, error } = useQuery({
    queryKey: ["tables"],
    queryFn: () => dataOf(api.GET("/api/v1/tables")),
    refetchInterval: 5_000,
  });
  if (error) return <p role="alert">{error.message}</p>;
  return (
    <ul>
      {data?.tables.map((each) => (
        <li key={each.path}>
          <Link href={`/tables/${each.database}/${each.table}`}>{each.path}</Link> {each.health}{" "}
          {each.why}
        </li>
      ))}
    </ul>
  );
}
