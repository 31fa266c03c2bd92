/** What is around a view: queries, addresses and actions. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Router } from "wouter";
import { retriesOnce } from "../api/client";
import { useHashLocation } from "../location";
import { ActionsProvider } from "../parts/Actions";

export function Page({ children }: { children: ReactNode }) {
  const [queries] = useState(
    () => new QueryClient({ defaultOptions: { queries: { retry: retriesOnce, retryDelay: 1 } } }),
  );
  return (
    <QueryClientProvider client={queries}>
      <Router hook={useHashLocation}>
        <ActionsProvider>{children}</ActionsProvider>
      </Router>
    </QueryClientProvider>
  );
}
