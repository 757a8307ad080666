"""Which machine a run was measured on, as far as results tell: figures of two machines do not compare."""

from __future__ import annotations

from collections.abc import Iterable

from explorer.results.environment import DeviceInfo, Environment
from explorer.results.log import RunRecord


def machine(record: RunRecord) -> str | None:
    """What tells the run's device from any other: a GPU's name and UUID, a CPU's name and memory in GiB.

    None where the run never said what it ran on.
    """
    config = record.segments[-1].config if record.segments else record.config
    if record.environment is None:
        return None
    try:
        device = record.environment.device(config.device)
    except ValueError:
        return None  # A device that was asked for and is not there: its run failed, and says so.
    return _key(device)


def several_machines(records: Iterable[RunRecord]) -> str | None:
    """One line that names the machines of these runs where there are several; None where there is one."""
    numbers: dict[str, list[int]] = {}
    for record in records:
        name = machine(record)
        if name is not None:
            numbers.setdefault(name, []).append(record.run_id)
    if len(numbers) < 2:
        return None
    each = "; ".join(f"{', '.join(map(str, of))} on {name}" for name, of in numbers.items())
    return f"these runs are of different machines, and their speeds do not compare: {each}"


def elsewhere(records: Iterable[RunRecord], here: Environment | None) -> str | None:
    """The devices of these runs that this machine does not have; None where there are none, or it is not known yet."""
    if here is None:
        return None
    own = {_key(device) for device in here.devices}
    others = dict.fromkeys(name for record in records if (name := machine(record)) is not None and name not in own)
    return "; ".join(others) or None


def _key(device: DeviceInfo) -> str:
    if device.uuid is None and not device.total_memory_bytes:
        return device.name  # From a CSV, which tells no more: it counts as another machine's.
    return f"{device.name}, {device.uuid or f'{device.total_memory_bytes / 2**30:.0f} GiB'}"
