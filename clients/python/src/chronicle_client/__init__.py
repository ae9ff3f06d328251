"""A client of Chronicle, the undo layer for AI agents.

`Chronicle` waits for its answers, `AsyncChronicle` is awaited; both have every operation of the API
as a method, take and give its shapes, and need nothing but the standard library.
"""

from . import shapes
from .asynchronous import AsyncChronicle
from .call import Head, Refused, Unreachable
from .content import AsyncContent, Content
from .waiting import Chronicle

__all__ = ["AsyncChronicle", "AsyncContent", "Chronicle", "Content", "Head", "Refused", "Unreachable", "shapes"]
