"""Names of client versions by the number that clients send, as in upstream. Pure."""

from __future__ import annotations

V4_0_0 = 213
"""From here on each release has two numbers. The even number before a release's number is that of its snapshot."""


def version_name(number: int) -> str:
    """The name of a version, such as `V5_3_3` for 479. A version before 4.0.0 is shown as its number."""
    if number < V4_0_0 - 1:
        return str(number)
    release = (number + 1 - V4_0_0) // 2
    name = f"V{4 + release // 100}_{release // 10 % 10}_{release % 10}"
    return name if number % 2 == V4_0_0 % 2 else f"{name}_SNAPSHOT"
