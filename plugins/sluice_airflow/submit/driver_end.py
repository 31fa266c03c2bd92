"""Why a Spark driver ended, by all that spark-submit has printed. Does not import Airflow."""

from __future__ import annotations

import logging
import re
import signal
from dataclasses import dataclass
from enum import IntEnum

from sluice_airflow.submit.output import HARMLESS, leveled

TEXT_MAX = 700
"""Characters of a reason."""
LINES_MAX = 3
"""Lines of one message."""
FRAMES_MAX = 4
"""Frames of a trace that are looked at."""
EXAMINED_MAX = 4096
"""Characters of a line that are looked at."""
_TRACEBACK = "Traceback (most recent call last):"

_IVY = re.compile(
    r"::|\||-{3,}|confs:|found \S+ in \S+|downloading |\[(?:SUCCESSFUL|FAILED|NOT FOUND)"
    r"|https?://\S+$|Ivy Default Cache|The jars for the packages|(?:local|file):.* added as a dep"
    r"|\S+#\S+ (?:added as a dependency|by \S+ in)|\d+ artifacts copied|==== |tried$|retrieving "
    r"|-- artifact |\(?\d+kB|Server access error|module not found|You probably access the dest"
)
"""Output of Ivy, which looks up spark.jars.packages. Its last line explains nothing."""
_UNREACHED = re.compile(r"Host \S+ not found|Server access error.*|.*(?:UnknownHostException).*")
"""What Ivy says if it reaches a repository not at all: then a package may exist all the same."""
_FRAME = re.compile(r"at \S|File \"|\.\.\. \d+ more|\^+|~*\^|[\w.$/]+\([\w.]+:\d+\)$|Suppressed: ")
_THREAD = re.compile(r"Exception in thread \"([^\"]*)\" ")
_EXCEPTION = re.compile(r"[\w.$]+(?:Error|Exception|Interrupt)\b")
_FATAL = re.compile(
    r"Terminating due to java\.lang\.|There is insufficient memory for the Java Runtime"
    r"|A fatal error has been detected by the Java Runtime|Could not reserve enough space"
    r"|Invalid (?:maximum|initial) heap size|Unrecognized (?:VM )?option|Conflicting collector"
    r"|Error: Not allowed to |Multiple garbage collectors|.*: can't open file '"
    r"|.*Application has been killed\. Reason|.*/bin/java: |JAVA_HOME is not set"
    r"|.*Container killed |.*(?i:beyond (?:the )?'?(?:physical|virtual))"
    r"|.*was killed by user |.*\bOOMKilled\b|.*Failed to create any local dir"
)
"""Lines that end a driver, and explain what is printed after them."""
_OF_EXECUTOR = re.compile(
    r".*(?:Lost executor|ExecutorLostFailure|(?i:executor) \w+ .*(?:exited|failed|killed|lost)"
    r"|Completed container|YarnAllocator: |ExecutorPods\w+: )"
)
"""Records of the end of an executor, which does not end the driver: Spark starts another one."""
_INITIAL = "SparkContext: Error initializing SparkContext."
_AFTERMATH = re.compile(
    r"Py4JNetworkError|Answer from Java side is empty|ConnectionRefusedError|ConnectionResetError"
    r"|BrokenPipeError|EOFError|stopped SparkContext|Uncaught exception in thread|RpcEnv already"
    r"|ShutdownHookManager|Shutdown hooks cannot be modified|Shutdown in progress"
    r"|SparkContext has been shutdown|SparkContext was shut down"
)
"""What a driver says because it has ended already."""
_SETTINGS = re.compile(
    r"\[(?:INVALID_|CODEC_|PYTHON_VERSION_MISMATCH|[A-Z_]*CONF[A-Z_]*[.\]])"
    r"|FileNotFoundException: (?:File|Jar) \S+ (?:does not exist|not found)|can't open file '"
    r"|Cannot run program \"[^\"]*\": error=(?:2|13)\b|ClassNotFoundException|NoClassDefFoundError"
    r"|UnsupportedClassVersionError|Cannot find catalog plugin class|Could not parse Master URL"
    r"|Error: Not allowed to |Invalid (?:maximum|initial) heap size|Could not reserve enough space"
    r"|Unrecognized (?:VM )?option|Conflicting collector|Multiple garbage collectors"
    r"|/bin/java: |JAVA_HOME is not set"
    r"|Cannot assign requested address|Failed to create any local dir|requirement failed: "
    r"|(?:^|[.])(?:SyntaxError|IndentationError|ImportError|ModuleNotFoundError): "
    r"|unresolved dependency: .* not found|has to be >= the number of cpus per task"
    r"|When running with master 'yarn' either HADOOP_CONF_DIR"
)
"""What only another setting, file or installation heals."""
_SHORT = re.compile(
    r"No space left|Disk quota exceeded|Cannot allocate memory|Too many open files"
    r"|Resource temporarily unavailable"
)
"""What may be there at the next start. The error that follows from it may look like a setting."""
_MAY_PASS = re.compile(r"ConnectException: |Can only call getServletHandlers")
"""Errors that look like a setting: no free port, and a start that something else has stopped."""
_CHECKS = re.compile(
    r"at org\.apache\.spark\.(?:deploy\.SparkSubmitArguments\.|deploy\.SparkSubmit\.error"
    r"|internal\.config\.|SparkConf\.)"
)
"""Frames of the code in which Spark checks its settings."""


_ABORTED = re.compile(r"Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): ")
"""What Spark says before the error of a task."""


class _Rank(IntEnum):
    """How well a message explains the end: the highest one counts."""

    LAST = 0
    AFTERMATH = 1
    ERROR = 2
    UNCAUGHT = 3
    INITIAL = 4
    FATAL = 5

    @property
    def first_counts(self) -> bool:
        """Whether the first message of this rank counts, and not the last one."""
        return self >= _Rank.INITIAL


@dataclass(slots=True)
class _Message:
    """An error, with the innermost cause that says something else."""

    rank: _Rank
    text: str = ""
    cause: str = ""
    lines: int = 1
    frames: int = 0
    is_setting: bool = False
    is_record: bool = False
    """Of a log: the error itself may follow."""

    def __str__(self) -> str:
        return f"{self.text}; caused by {self.cause}" if self.cause else self.text

    def add_line(self, line: str) -> None:
        if self.lines < LINES_MAX and len(self.text) < TEXT_MAX:
            self.text = f"{self.text} {line}"[:TEXT_MAX]
            self.lines += 1

    def add_cause(self, cause: str) -> None:
        self.lines = LINES_MAX  # no more lines of its text
        if cause.partition(": ")[2] not in self.text + self.cause:
            self.cause = cause[:TEXT_MAX]

    def add_frame(self, line: str) -> None:
        self.frames += 1
        if self.frames <= FRAMES_MAX and _CHECKS.match(line):
            self.is_setting = True
        self.lines = LINES_MAX


class DriverEnd:
    """Chooses from an output what explains best why it ended. It keeps a few messages only.

    The first message of a JVM that cannot go on counts, else the cause for which Spark's context
    could not be made, else the last error that nothing caught, with the Java error below a Py4J
    header in its place, else the last error. Errors that follow from the end itself count less.
    """

    def __init__(self) -> None:
        self._best = _Message(_Rank.LAST)
        self._open: _Message | None = None
        """To which the next lines may belong."""
        self._in_traceback = False
        self._is_nested = False
        """Whether that traceback is in the message of an error."""
        self._level_counts = True
        """Whether the last record of a log was an error."""
        self._of_executor = False
        """Whether the last record of a log was of an executor, as are the lines after it."""
        self._unreached = ""
        self._is_short = False
        """Whether a line names what is short for now."""

    def add(self, line: str) -> None:
        text = line[:EXAMINED_MAX].strip().removeprefix("# ")
        self._is_short = self._is_short or _SHORT.search(text) is not None
        if self._unreached == "" and (found := _UNREACHED.match(text)):
            self._unreached = found[0][:200]
            return
        if not text or HARMLESS.match(text) or _IVY.match(text):
            return
        if text.endswith(_TRACEBACK):
            if words := text.removesuffix(_TRACEBACK).rstrip(" :"):
                self._add_words(words)
            self._in_traceback, self._is_nested = True, bool(words)
            return
        if text.startswith(("Driver stacktrace:", "JVM stacktrace:", "Usage: ")):
            self._in_traceback = False
            return
        if _FRAME.match(text):
            if self._open is not None:
                self._open.add_frame(text)
            return
        if self._in_traceback and line[:1].isspace():
            return  # the code of a frame
        self._add_words(text)

    def _add_words(self, text: str) -> None:
        level, shown = leveled(text)
        if shown != text:  # a record of a log
            self._in_traceback = False
            self._add_record(level, shown.removeprefix("Spark: "), shown.startswith("Spark: "))
        elif text.startswith("Caused by: ") and self._open is not None:
            self._open.add_cause(text.removeprefix("Caused by: "))
        elif text.startswith(": ") and self._open is not None and not self._open.text:
            self._begin_text(self._open, text.removeprefix(": "))  # below a Py4J header
        elif _FATAL.match(text) and not self._of_executor:
            self._begin(_Rank.FATAL, text)
        elif found := _THREAD.match(text):
            rank = _Rank.UNCAUGHT if found[1] == "main" else _Rank.ERROR
            self._begin(rank, text[found.end() :])
        elif _EXCEPTION.match(text) or text.startswith("Error: "):
            self._add_exception(text)
        elif self._open is not None and self._open.rank > _Rank.LAST:
            self._open.add_line(text)
        elif self._in_traceback:
            return  # of an error that does not count
        else:
            self._begin(_Rank.LAST, text)

    def _add_record(self, level: int, shown: str, is_spark: bool) -> None:
        self._level_counts = level >= logging.ERROR
        self._of_executor = _OF_EXECUTOR.match(shown) is not None
        if _FATAL.match(shown) and not self._of_executor:
            self._begin(_Rank.FATAL, shown)
        elif shown == _INITIAL:
            self._open = _Message(_Rank.INITIAL)
        elif level >= logging.ERROR:
            self._begin_text(_Message(_Rank.ERROR, is_record=True), shown)
        elif level > logging.DEBUG and not is_spark:
            self._begin(_Rank.LAST, shown)
        else:
            self._open = None

    def _add_exception(self, text: str) -> None:
        rank = _Rank.UNCAUGHT if self._in_traceback else _Rank.ERROR
        opened, is_nested = self._open, self._in_traceback and self._is_nested
        self._in_traceback = False
        if is_nested:
            if opened is not None:
                opened.add_cause(text)
        elif text.startswith("py4j.protocol.Py4JJavaError: "):
            self._open = _Message(_Rank.UNCAUGHT)  # its cause is the next line
        elif opened is not None and opened.rank is _Rank.INITIAL and not opened.text:
            self._begin_text(opened, text)
        elif (rank is _Rank.ERROR and not self._level_counts) or _AFTERMATH.search(text):
            self._begin(_Rank.AFTERMATH, text)
        elif opened is not None and opened.is_record and rank is _Rank.ERROR:
            opened.add_cause(text)
            opened.is_record = False
        else:
            self._begin(rank, text)

    def _begin(self, rank: _Rank, text: str) -> None:
        self._begin_text(_Message(rank), text)

    def _begin_text(self, message: _Message, text: str) -> None:
        if message.rank < _Rank.INITIAL and _AFTERMATH.search(text):
            message.rank = _Rank.AFTERMATH
        message.text = _ABORTED.sub("Job aborted: ", text)[:TEXT_MAX]
        if message.rank is _Rank.FATAL and not text.startswith("There is insufficient memory"):
            message.lines = LINES_MAX  # what follows is of the shell, or a help text
        self._open = message
        best = self._best
        if message.rank > best.rank or (message.rank == best.rank and not best.rank.first_counts):
            self._best = message

    def __str__(self) -> str:
        shown = str(self._best)
        if self._unreached and "unresolved dependency" in shown:
            shown += f"; a repository was not reached: {self._unreached}"
        return shown

    @property
    def is_aftermath(self) -> bool:
        """Whether all that was said follows from the end itself."""
        return self._best.rank is _Rank.AFTERMATH

    @property
    def is_setting(self) -> bool:
        """Whether the same settings lead to the same end: no second start helps."""
        if self._best.rank <= _Rank.AFTERMATH or self._is_short:
            return False
        shown = str(self)
        if self._unreached and "unresolved dependency" in shown:
            return False
        if _MAY_PASS.search(shown):
            return False
        return self._best.is_setting or _SETTINGS.search(shown) is not None


def ended_by(code: int | None) -> str:
    """The signal that an exit code stands for: that of a process, or of a shell's child. Or ""."""
    if code is None or (0 <= code <= 128) or code > 128 + 64:
        return ""
    try:
        return signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return ""
