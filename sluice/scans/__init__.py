"""The rules of scan sessions (ScanKv), without I/O, clock or lock."""

from sluice.scans.replies import Replies, Reply
from sluice.scans.requests import CloseScan, ContinueScan, OpenScan, ScanRequest, request_of
from sluice.scans.sessions import ScanLimits, Sessions
from sluice.scans.types import ScanRange, Session, opened

__all__ = [
    "CloseScan",
    "ContinueScan",
    "OpenScan",
    "Replies",
    "Reply",
    "ScanLimits",
    "ScanRange",
    "ScanRequest",
    "Session",
    "Sessions",
    "opened",
    "request_of",
]
