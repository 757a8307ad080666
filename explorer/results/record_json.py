"""A run without its samples, as plain JSON and back: what the store and bundles keep beside the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from explorer.config import RunConfig
from explorer.results.environment import DeviceInfo, Environment, Finding
from explorer.results.environment_text import to_dict
from explorer.results.log import Failure, Mark, Outcome, RunRecord, SegmentRecord
from explorer.results.sample import Segment
from explorer.results.statistics import SegmentSummary
from explorer.results.ways_out import ways_out_from_dict, ways_out_to_dict


def record_to_dict(record: RunRecord) -> dict[str, Any]:
    """Everything of a run but its samples, in plain JSON types; ``record_from_dict`` reads it back."""
    return {
        "uid": record.uid,
        "started_at": record.started_at,
        "config": record.config.to_dict(),
        "reference": record.reference.to_dict(),
        "environment": None if record.environment is None else to_dict(record.environment),
        "segments": [segment_to_dict(kept) for kept in record.segments],
        "text": record.text,
        "outcome": record.outcome,
        "problem": record.problem,
        "ways_out": ways_out_to_dict(record.ways_out),
        "failure": failure_to_dict(record.failure),
        "notes": list(record.notes),
        "marks": marks_to_list(record.marks),
    }


def record_from_dict(values: Mapping[str, Any], *, run_id: int) -> RunRecord:
    """The run that ``record_to_dict`` wrote, without samples.

    Raises:
        ValueError: a field is missing, unknown or of the wrong kind; the message says which.
    """
    try:
        if values["outcome"] not in get_args(Outcome):
            raise ValueError(f"outcome is {values['outcome']!r}; allowed: {', '.join(get_args(Outcome))}")
        environment = values["environment"]
        return RunRecord(
            run_id=run_id,
            uid=str(values["uid"]),
            started_at=str(values["started_at"]),
            config=RunConfig.from_dict(values["config"]),
            reference=RunConfig.from_dict(values["reference"]),
            environment=None if environment is None else environment_from_dict(environment),
            segments=[segment_from_dict(kept) for kept in values["segments"]],
            outcome=values["outcome"],
            problem=values["problem"],
            ways_out=ways_out_from_dict(values.get("ways_out", {})),
            failure=_failure(values.get("failure", {})),
            notes=[str(note) for note in values.get("notes", ())],
            marks=[Mark(after_step=int(step), text=str(text)) for step, text in values.get("marks", ())],
            pieces=[str(values["text"])],
        )
    except KeyError as error:
        raise ValueError(f"the run lacks {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"the run cannot be read: {error}") from error


def failure_to_dict(failure: Failure | None) -> dict[str, str]:
    """Its parts by name; empty: none."""
    return {} if failure is None else dataclasses.asdict(failure)


def _failure(values: Mapping[str, Any]) -> Failure | None:
    if not values:
        return None
    return Failure(what=str(values["what"]), why=str(values["why"]), remedy=str(values["remedy"]))


def marks_to_list(marks: Sequence[Mark]) -> list[list[Any]]:
    """The last step before each, and its text."""
    return [[mark.after_step, mark.text] for mark in marks]


def segment_to_dict(kept: SegmentRecord) -> dict[str, Any]:
    """A segment and its configuration in plain JSON types."""
    values = {**dataclasses.asdict(kept.segment), "changes": list(kept.segment.changes)}
    if kept.figures is not None:
        values["figures"] = dataclasses.asdict(kept.figures)
    return {**values, "config": kept.config.to_dict()}


def segment_from_dict(values: Mapping[str, Any]) -> SegmentRecord:
    """The segment that ``segment_to_dict`` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    segment = Segment(
        index=int(values["index"]),
        first_step=int(values["first_step"]),
        changes=tuple(str(change) for change in values["changes"]),
        started_at=str(values["started_at"]),
        flop_per_token=_number(values.get("flop_per_token")),
        ceiling_tflop_per_s=_number(values.get("ceiling_tflop_per_s")),
    )
    figures = values.get("figures")
    return SegmentRecord(
        segment=segment,
        config=RunConfig.from_dict(values["config"]),
        figures=None if figures is None else SegmentSummary(**figures),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def environment_from_dict(values: Mapping[str, Any]) -> Environment:
    """The environment that ``environment_text.to_dict`` wrote; what another version knew besides is left out.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    devices = [
        DeviceInfo(**{**_known(DeviceInfo, device), "capability": device["capability"] and (*device["capability"],)})
        for device in values["devices"]
    ]
    if not devices:
        raise ValueError("the environment has no device")
    findings = tuple(Finding(**finding) for finding in values["findings"])
    return Environment(**{**_known(Environment, values), "devices": tuple(devices), "findings": findings})


def _known(kind: type[DeviceInfo | Environment], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}
