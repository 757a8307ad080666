"""What the engine raises on purpose: a request that cannot be met, and a run that was asked to stop."""

from __future__ import annotations


class BadRequest(ValueError):
    """The request is at fault, not the run: a file, a model or a setting that is not as it must be."""

    def __init__(self, what: str, why: str, remedy: str = "") -> None:
        super().__init__(what, why, remedy)
        self.what = what
        """What could not be done, or the file that is wrong."""
        self.why = why
        self.remedy = remedy
        """What to do about it; may be empty."""

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.what}: {self.why}", self.remedy) if part)


class Diverged(Exception):
    """An arm of a comparison computes no numbers any more, so that its speed says nothing."""

    def __init__(self, arm: str, why: str) -> None:
        super().__init__(f"arm {arm}: {why}")
        self.arm = arm
        """A or B."""
        self.why = why
        """The step and the cause."""


class Cancelled(Exception):
    """Stop was asked for while something long (loading, tokenizing, downloading) was going on."""
