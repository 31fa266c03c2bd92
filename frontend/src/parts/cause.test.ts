import { expect, test } from "vitest";
import { causeOf } from "./cause";

const DENIED = "User: lake-writer is not authorized to perform: s3:PutObject (Status Code: 403)";
const SPARK =
  "LakeNotWritable: table shop.orders: 2 of 2 splits failed; caused by SparkException: Job aborted" +
  " due to stage failure: Task 1 in stage 41.0 failed 4 times (10.42.7.19 executor 6):" +
  " java.io.UncheckedIOException: java.io.IOException: software.amazon.model.S3Exception: ";

test("the cause is the message of the last exception", () => {
  expect(causeOf(SPARK + DENIED)).toBe(DENIED);
});

test("the request of a cloud is left to the whole text", () => {
  const request = " (Service: S3, Status Code: 403, Request ID: 7RQ2N4K8)";
  expect(causeOf(SPARK + DENIED + request)).toBe(DENIED);
});

test("a stack trace ends it", () => {
  const trace = `${SPARK}${DENIED}\n\tat org.apache.iceberg.io.Writer.close(Writer.java:88)`;
  expect(causeOf(trace)).toBe(DENIED);
});

test("a short reason, one without exceptions, and one that is all cause have none of their own", () => {
  expect(causeOf(`IOException: ${DENIED}`)).toBeNull();
  expect(causeOf("a file is in the way, rename it. ".repeat(10))).toBeNull();
  expect(
    causeOf(`LakeNotWritable: java.io.IOException: ${"no space left. ".repeat(20)}`),
  ).toBeNull();
  expect(causeOf(`${"x".repeat(300)} java.lang.OutOfMemoryError: \n at Main`)).toBeNull();
});
