import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { changedHeader, noteChanged } from "./changed";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
afterEach(() => void vi.useRealTimers());

test("the newest changes are told for a minute", () => {
  expect(changedHeader()).toBeNull();
  noteChanged("shop.orders", 1);
  noteChanged("shop.users", 2);
  noteChanged("shop.orders", 3);
  expect(changedHeader()).toBe("shop.users@2,shop.orders@3");
  vi.advanceTimersByTime(30_000);
  for (let i = 0; i < 7; i++) noteChanged(`shop.t${i}`, 10 + i);
  expect(changedHeader()!.split(",")).toHaveLength(8);
  expect(changedHeader()).toMatch(/^shop\.orders@3,shop\.t0@10,/);
  vi.advanceTimersByTime(30_001);
  expect(changedHeader()).toMatch(/^shop\.t0@10,/);
  noteChanged("shop.t0", null);
  vi.advanceTimersByTime(30_000);
  expect(changedHeader()).toBeNull();
});
