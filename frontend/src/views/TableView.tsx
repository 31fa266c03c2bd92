import { useQuery } from "@tanstack/react-query";
import { api, dataOf } from "../api/client";

export function TableView({ database, table }: { database: string; table: string }) {
  const { data, error } = useQuery({
    queryKey: ["table", database, table],
    queryFn: () =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}", { params: { path: { database, table } } }),
      ),
  });
  if (error) return <p role="alert">{error.message}</p>;
  return <h1>{data?.table.path ?? `${database}.${table}`}</h1>;
}
