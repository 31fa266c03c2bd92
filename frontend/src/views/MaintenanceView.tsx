import { useQuery } from "@tanstack/react-query";
import { api, dataOf } from "../api/client";

export function MaintenanceView() {
  const { data, error } = useQuery({
    queryKey: ["maintenance"],
    queryFn: () => dataOf(api.GET("/api/v1/maintenance")),
  });
  if (error) return <p role="alert">{error.message}</p>;
  return <p>{data?.total} tables</p>;
}
