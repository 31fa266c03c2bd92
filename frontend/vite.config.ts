import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// `SLUICE_UI=http://127.0.0.1:8790 npm run dev` shows the data of a running `sluice ui`.
const server = process.env.SLUICE_UI ?? "http://127.0.0.1:8790";

export default defineConfig({
  plugins: [react()],
  base: "./", // Airflow serves the page below a path of its own
  build: {
    outDir: "../sluice/page/static",
    emptyOutDir: true,
    sourcemap: false,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900,
  },
  server: { proxy: { "/api": server } },
  test: {
    environment: "happy-dom",
    setupFiles: ["./src/test-setup.ts"],
    pool: "threads", // starts sooner than processes, and each file still has its own modules
    testTimeout: 20_000,
    restoreMocks: true,
  },
});
