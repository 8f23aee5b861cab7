"""The families of tasks by name; each is a file with `tasks(options)`."""

from __future__ import annotations

from collections.abc import Iterable

from common.errors import BadInput
from eval.retrieval import beir, in_domain
from eval.sts import tasks as sts
from eval.task import Options, Task
from eval.transfer import tasks as transfer

GROUPS = {"sts": sts.tasks, "transfer": transfer.tasks, "retrieval": in_domain.tasks, "beir": beir.tasks}
NEEDS = {"retrieval": "--split test", "beir": "--beir NAME ... (folders below DATA_DIR/beir, paper14 or nano)"}


def tasks_named(names: Iterable[str], options: Options) -> list[Task]:
    """Tasks by group (`sts`) or name (`STS12`, any case); BadInput with the known ones otherwise."""
    known = {task.name.lower(): task for group in GROUPS.values() for task in group(options)}
    chosen: list[Task] = []
    for name in names:
        if name in GROUPS:
            found = GROUPS[name](options)
            if not found:
                raise BadInput(f"--tasks {name} needs {NEEDS[name]}")
            chosen += found
        elif name.lower() in known:
            chosen.append(known[name.lower()])
        else:
            choices = ", ".join([*GROUPS, *(task.name for task in known.values())])
            raise BadInput(f"task '{name}' is unknown for split '{options.split}'; choose from: {choices}")
    return list({task.name: task for task in chosen}.values())  # of a group and one of its tasks each counts once
