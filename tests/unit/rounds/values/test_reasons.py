"""Reasons that a person can read: deepest cause, no stack trace, no secret."""

from __future__ import annotations

from sluice.errors import LakeNotWritable, RequestTimeOut, SplitFailed
from sluice.model import Reason
from sluice.rounds.values.reasons import reason_of


def test_an_error_of_ours_speaks_for_itself() -> None:
    reason = reason_of(RequestTimeOut("GetTableInfo of db.t: no answer in 30 s"))
    assert reason.kind == "RequestTimeOut"
    assert reason.text == "GetTableInfo of db.t: no answer in 30 s"
    assert reason.retryable


def test_the_deepest_cause_is_added() -> None:
    try:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise LakeNotWritable("write /lake/a.parquet") from error
    except LakeNotWritable as error:
        reason = reason_of(error)
    assert reason.text == (
        "write /lake/a.parquet; caused by OSError: [Errno 28] No space left on device"
    )
    assert reason.deepest_cause == "OSError: [Errno 28] No space left on device"


def test_a_suppressed_context_is_no_cause() -> None:
    try:
        try:
            raise KeyError("x")
        except KeyError:
            raise LakeNotWritable("that") from None
    except LakeNotWritable as error:
        assert reason_of(error).text == "that"


def test_a_splits_failure_keeps_what_lay_below_it() -> None:
    made = Reason("SplitFailed", "bucket 1:0: X: y", "X: y", retryable=True)
    assert reason_of(SplitFailed("bucket 1:0: X: y", reason=made)) is made


class Throwable:
    """As py4j shows a Java exception."""

    def __init__(self, name: str, message: str | None, cause: Throwable | None = None) -> None:
        self.name, self.message, self.cause = name, message, cause

    def getClass(self) -> Throwable:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getMessage(self) -> str | None:  # noqa: N802
        return self.message

    def getCause(self) -> Throwable | None:  # noqa: N802
        return self.cause


class FromJava(Exception):
    """Carries a Java exception, as Py4JJavaError does."""

    def __init__(self, java_exception: Throwable) -> None:
        super().__init__("An error occurred while calling o42.commit.\n: stack trace")
        self.java_exception = java_exception


def test_java_causes_are_unwrapped() -> None:
    deep = Throwable("java.net.UnknownHostException", "minio: Name or service not known")
    top = Throwable("org.apache.iceberg.exceptions.RuntimeIOException", "Failed to write", deep)
    reason = reason_of(FromJava(top))
    assert reason.kind == "RuntimeIOException"
    assert reason.text == "UnknownHostException: minio: Name or service not known"


def test_nothing_in_python_is_deeper_than_javas_causes() -> None:
    """What Python met when it called Java is no cause of what Java threw."""
    error = FromJava(Throwable("a.B", "no room"))
    error.__context__ = KeyError("x")
    assert reason_of(error).deepest_cause == "B: no room"


def test_a_cause_without_words_is_passed_over() -> None:
    top = Throwable("a.B", "useful words", Throwable("java.lang.NullPointerException", None))
    assert reason_of(FromJava(top)).text == "B: useful words"


def test_stack_traces_inside_messages_are_left_out() -> None:
    message = (
        "Job aborted due to stage failure: Task 0 failed 4 times\n"
        "\tat org.apache.spark.X.y(X.scala:12)\nDriver stacktrace:\n\tat z"
    )
    reason = reason_of(FromJava(Throwable("org.apache.spark.SparkException", message)))
    assert reason.text == "SparkException: Job aborted due to stage failure: Task 0 failed 4 times"
    session = "no room\n\nJVM stacktrace:\na.B: no room\n\tat a.C.d(C.java:7)"
    assert reason_of(RuntimeError(session)).text == "RuntimeError: no room"
    python = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: bad'
    assert reason_of(RuntimeError(python)).text == "RuntimeError: ValueError: bad"


def test_no_secret_is_in_a_reason() -> None:
    error = LakeNotWritable("s3://AK:se/cret@bucket: password=abc; login of planted-value refused")
    reason = reason_of(error, ["planted-value"])
    shown = "s3://***@bucket: password=***; login of *** refused"
    assert reason.text == shown
    assert reason.deepest_cause == f"LakeNotWritable: {shown}"


def test_long_reasons_are_cut_to_4096_characters() -> None:
    reason = reason_of(LakeNotWritable("ü" * 9000))
    assert len(reason.text) == 4096
    assert reason.text.endswith("ü…")


def test_a_chain_that_runs_in_a_circle_ends() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert reason_of(one).kind == "RuntimeError"
