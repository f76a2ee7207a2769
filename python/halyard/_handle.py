"""What the package's objects tell of the extension's, which they hold."""

import operator
from typing import Any


def told(name: str, doc: str | None = None) -> Any:
    """A property: what the extension's object has under this name."""
    return property(operator.attrgetter(f"_handle.{name}"), doc=doc)
