"""A study is data: one file in papers/studies, whose combinations are trained once per seed.

    title             of a new page
    page              of results/, if it is that of another study
    seeds, flags      of every run; `config` is METHOD-BACKBONE, see papers.plans, the others are
                      flags of its script
    levels            {factor: {level: flags}}; a list of values is one of levels that set the flag
                      FACTOR
    rows              [{factor: [levels], flags}]: whose combinations are trained (default: all)
    choose            factor: all its levels have the study's first seed, whichever are asked for;
                      the best on STS-B dev has the others too
    recorded          why `python -m papers` cannot train it: its commands stand on the page
    retrieval         sets of DATA_DIR/beir, for the column `retrieval`
    columns, tables   figures of a run, and tables of the page: names of papers/study_page.py
    against           the level of the first factor that the others are compared with, each with
                      its best level of the second
    effects           [[factor, factors]]: each level of the first minus its first level, at every
                      level of the others
    pairs             [[{factor: level}, {factor: level}]]: two arms; the same factors in both
    figure            of the loss increases of a stage 1: `study_page.draw_increases`

Flags may contain `stage_one`, the flags of the run whose model is the initial one (without a
`seed`, one per seed).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from common.files import read_rows, read_yaml

FOLDER = Path(__file__).parent / "studies"
Levels = tuple[str, ...]  # of a run, in the order of the factors
Rows = dict[tuple[Levels, int], list[dict[str, Any]]]  # by levels and seed


@dataclass(frozen=True)
class Study:
    """The content of a study's file."""

    name: str
    title: str
    seeds: Sequence[int]
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]]
    tables: Sequence[str]
    flags: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    recorded: str | None = None
    choose: str | None = None
    retrieval: Sequence[str] = ()
    against: str | None = None
    effects: Sequence[Sequence[str]] = ()
    pairs: Sequence[Sequence[Mapping[str, str]]] = ()
    figure: Mapping[str, Any] | None = None
    page: str | None = None

    @cached_property
    def combinations(self) -> dict[Levels, dict[str, Any]]:
        """The levels of all runs -> their flags."""
        combinations = {}
        for row in self.rows or [self.levels]:
            for levels in product(*(row[factor] for factor in self.levels)):
                flags = dict(self.flags)
                for factor, level in zip(self.levels, levels, strict=True):
                    flags.update(self.levels[factor][level])
                flags.update(row.get("flags", {}))
                combinations[levels] = flags
        return combinations

    def chosen(self, first_levels: Sequence[str]) -> list[Levels]:
        """The combinations with these levels of the first factor; all if none is given."""
        if not first_levels:
            return list(self.combinations)
        return [levels for levels in self.combinations if levels[0] in first_levels]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str) -> Study:
    content = read_yaml(FOLDER / f"{name}.yaml", strings=True)
    content["seeds"] = [int(seed) for seed in content["seeds"]]
    for factor, levels in content["levels"].items():
        if isinstance(levels, list):
            content["levels"][factor] = {level: {factor: level} for level in levels}
    return Study(name=name, **content)


def known_rows(study: Study, path: Path) -> Rows:
    """The rows in a study's file; none if there is no file."""
    return by_run(study, read_rows(path, "a study's results", "give another --output"))


def by_run(study: Study, rows: Sequence[dict[str, Any]]) -> Rows:
    """The rows by levels and seed."""
    runs: Rows = {}
    for row in rows:
        levels = tuple(row[factor] for factor in study.levels)
        runs.setdefault((levels, int(row["seed"])), []).append(row)
    return runs


def ordered(study: Study, rows: Rows) -> list[dict[str, Any]]:
    """The rows in the order of the study's combinations."""
    order = {levels: number for number, levels in enumerate(study.combinations)}
    in_order = []
    for levels, seed in sorted(rows, key=lambda run: (order[run[0]], run[1])):
        in_order += rows[levels, seed]
    return in_order
