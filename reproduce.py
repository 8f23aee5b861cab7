"""Repeat a finished run from its record and compare the weights by sha256.

    python reproduce.py RUN_DIR [--output DIR]

Start it in the folder of the original command, whose paths may be relative, and with the same
launcher (`accelerate launch`). If the weights differ, the exit code is 1 and the differences
between the two records are listed. An interrupted repetition resumes if the code and versions are
unchanged; a finished one is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.errors import BadInput, ProjectError, run_command

# isort: split

from accelerate import PartialState

import run_pretrain_aux
import run_sup
import run_unsup
from common.files import sha256
from common.flags import Parser
from common.streams import show
from training.folder import RUN_FILE, WEIGHTS, check_result, read_run
from training.provenance import provenance
from training.settings import values_of, words_of

SCRIPTS = {
    "run_unsup.py": run_unsup.main,
    "run_sup.py": run_sup.main,
    "run_pretrain_aux.py": run_pretrain_aux.main,
}


class Unequal(ProjectError):
    """The same command gave different weights."""


def main(argv: list[str] | None = None) -> None:
    """Repeat the run and compare.

    Raises:
        BadInput: RUN_DIR is not a finished run with weights, or --output has a finished run or one
            of other code.
        Unequal: the weights differ; lists the differences between the two records.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("run_dir", help="folder of a finished run")
    parser.add_argument("--output", help="folder of the new run; default: RUN_DIR-again")
    args = parser.parse_args(argv)
    old = Path(args.run_dir)
    new = Path(args.output or f"{args.run_dir.rstrip('/')}-again")
    record = read_run(old)
    script = record.get("script")
    names = [name for name in WEIGHTS if (old / name).is_file()]
    if record["status"] != "finished" or script not in SCRIPTS or not names:
        raise BadInput(
            f"{old}: only a finished run of {' or '.join(SCRIPTS)} with its weights can be "
            "reproduced"
        )
    check_result(old, record)
    _check_new(new)
    SCRIPTS[script](words_of(values_of(record["command"][2:]) | {"output_dir": str(new)}))
    if PartialState().is_main_process:
        _compare(old, new, names, record, read_run(new))


def _check_new(folder: Path) -> None:
    """Refuse a folder whose run is finished or was started with different code: neither would prove anything."""
    if not (folder / RUN_FILE).is_file():
        return
    record, now = read_run(folder), provenance()
    changed = [name for name in ("commit", "versions") if record.get(name) != now[name]]
    if record["status"] == "finished" or changed:
        reason = (
            f"was started with a different {changed[0].removesuffix('s')}"
            if changed
            else "has finished"
        )
        raise BadInput(
            f"{folder}: the run there {reason} and would prove nothing; remove it or give another "
            "--output"
        )


def _compare(
    old: Path, new: Path, names: list[str], before: dict[str, Any], after: dict[str, Any]
) -> None:
    hashes = {name: (sha256(old / name), sha256(new / name)) for name in names}
    for name, (ours, again) in hashes.items():
        show(f"{'equal' if ours == again else 'unequal'}: {name} {ours} {again}")
    if all(ours == again for ours, again in hashes.values()):
        return
    changed = []
    for part in ("trajectory", "versions", "hardware"):
        old_values, values = before[part], after[part]
        keys = sorted(
            key
            for key in old_values.keys() | values.keys()
            if old_values.get(key) != values.get(key)
        )
        changed += [f"{key}: was {old_values.get(key)}, is now {values.get(key)}" for key in keys]
    if before.get("commit") != after["commit"]:
        changed.append(f"commit: was {before.get('commit')}, is now {after['commit']}")
    raise Unequal(
        f"{new}: weights differ from {old}; changed: "
        f"{'; '.join(changed) or 'nothing that was recorded'}"
    )


if __name__ == "__main__":
    run_command(main)
