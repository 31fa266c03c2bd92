import { useQuery } from "@tanstack/react-query";
import { api, dataOf } from "../api/client";

export function LeasesView() {
  const { data, error } = useQuery({
    queryKey: ["leases"],
    queryFn: () => dataOf(api.GET("/api/v1/leases")),
  });
  if (error) return <p role="alert">{error.message}</p>;
  return <p>{data?.leases.length} leases</p>;
}
