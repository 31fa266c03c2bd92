import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { retriesOnce } from "./api/client";
import { App } from "./App";
import { openLinksOutside, sameOriginParent, shareHash } from "./frame";
import { useHashLocation } from "./location";
import { ActionsProvider } from "./parts/Actions";
import "./style.css";
import { applyTheme, storedTheme } from "./theme";

shareHash();
openLinksOutside();
applyTheme(storedTheme());
document.documentElement.toggleAttribute("data-framed", sameOriginParent() !== null);

const queries = new QueryClient({
  defaultOptions: { queries: { refetchOnWindowFocus: true, retry: retriesOnce, staleTime: 2_000 } },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Router hook={useHashLocation}>
        <ActionsProvider>
          <App />
        </ActionsProvider>
      </Router>
    </QueryClientProvider>
  </StrictMode>,
);
