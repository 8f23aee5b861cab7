"""The commands that the guides show: found on a page, and checked as far as a test can.

A command is run where that takes seconds on a tiny model, and otherwise taken as far as its parsed flags.
"""

import argparse
import re
import runpy
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from accelerate.commands.launch import launch_command_parser

import bench.text  # noqa: F401  takes find_files by name, and must not be read first while `only_parsing` holds
import training.sentence_run
from common import command_line

ROOT = Path(__file__).parents[2]
# What is done with a command, by the first pattern that its beginning matches; one that matches none is refused.
RUN, PARSE, TARGET, PATHS = "run", "parse its flags", "look for target and variables", "look for the paths it names"
CHECKS = {
    r"make ": TARGET,
    r"python -m pytest ": PATHS,  # in a test, tests are not run again
    r"accelerate launch ": PARSE,  # starts processes, mostly on GPUs
    r"python run_unsup.py --method toy --help": PATHS,  # tests/cli/test_contributing.py has the method, and asks
    r"python run_unsup.py --method \S+ --help": PARSE,
    r"python run_unsup.py --config configs/infocse-quickstart": RUN,
    r"python run_unsup.py .*(MY_SENTENCES|toy/sentences)": RUN,
    r"python run_pretrain_aux.py .*MY_PARAGRAPHS": RUN,
    r"python run_\w+.py ": PARSE,  # the papers' runs: the hub, data, hours
    r"python reproduce.py runs/": RUN,
    r"python reproduce.py ": PARSE,  # of a run that is not there
    r"python tests/faults/long.py ": PARSE,  # hours
    r"python -m bench ": PARSE,  # minutes to hours
    r"python -m data.prepare ": PARSE,  # the hub
    r"python -m baselines ": RUN,
    r"python -m eval \S+ .*--dev_file ": RUN,
    r"python -m eval ": PARSE,  # STS, transfer and BEIR sets, refused where they are not the published ones
    r"python -m eval.analyse .*--dev_file ": RUN,
    r"python -m eval.analyse ": PARSE,  # the same sets
    r"python -m eval.compare (--list|runs/my-)": RUN,
    r"python -m eval.compare ": PARSE,  # scores of finished runs
    r"python -m eval.encode_corpus CORPUS .*--processes": PARSE,
    r"python -m eval.encode_corpus CORPUS .*--output vectors$": RUN,
    r"python -m eval.encode_corpus ": PARSE,  # compressed shards, clusters
    r"python -m report .*--dev_file ": RUN,
    r"python -m report ": PARSE,  # STS-B
    r"python -m tables .*(--list|--dry_run)": RUN,
    r"python -m tables ": PARSE,  # hours
    r"python -m tables.methods$": PATHS,  # would write the README
    r"python -m export .*--push_to_hub": PARSE,  # the hub
    r"python -m export runs/": RUN,
}
SHORT = ("--max_steps=2 --eval_steps=2 --save_steps=2 --per_device_train_batch_size=8 --max_length=24 --use_cpu=true "
         "--disable_tqdm=true --bf16=false").split()  # fmt: skip
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(python [^`]*\s--[^`]*)`")


class Parsed(BaseException):
    """The command has read its flags and would begin its work."""


def blocks(text, kind):
    """Contents of a page's fenced blocks of a kind ("sh", or "" for unmarked ones)."""
    return [content for found, content in _BLOCK.findall(text) if found == kind]


def commands(text):
    """Every command of a page's sh blocks, without comments, and of its prose where it has flags."""
    lines = "".join(blocks(text, "sh")).replace("\\\n", " ").splitlines()
    shown = [" ".join(shlex.quote(word) for word in shlex.split(line, comments=True)) for line in lines]
    told = [" ".join(found.split()) for found in _INLINE.findall(_BLOCK.sub("", text))]
    return [command for command in (*shown, *told) if command]


def check(command):
    """Run a command of a page in this folder, or do what can be done; AssertionError or SystemExit where it fails."""
    command = re.sub(r"^(\w+=\S+ )+", "", command)  # variables of the environment
    what = next((what for pattern, what in CHECKS.items() if re.match(pattern, command)), None)
    assert what, f"not in the table of commands: {command}"
    words = shlex.split(command)
    for word in words:
        assert not word.startswith("configs/") or (ROOT / word).exists(), f"{word} is not there"
    if what == TARGET:
        _target(words[1:])
    elif what == PATHS:
        assert all((ROOT / word).exists() for word in words if "/" in word), command
    elif what == RUN:
        call(_given(words, _short(words)) if words[1].startswith("run_") else words)
    elif words[0] == "accelerate":
        launched = launch_command_parser().parse_args(words[2:])
        assert Path(ROOT / launched.config_file).exists(), command
        parse(["python", launched.training_script, *launched.training_script_args])
    else:
        parse(words)


def _target(words):
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, is_variable, _ = word.partition("=")
        known = rf"^{name} \?=" if is_variable else rf"^{name}:"
        assert re.search(known, text, re.MULTILINE), f"make has no {name}"


def _given(words, flags):
    """A command with other flags in the place of its own of the same names."""
    kept, dropped = [], False
    for word in words:
        if word.startswith("--"):
            dropped = any(flag.split("=")[0] == word.split("=")[0] for flag in flags)
        if not dropped:
            kept.append(word)
    return [*kept, *flags]


def _short(words):
    """Flags that make a run short; one that would start from the hub starts from the tiny model."""
    tests = [] if "run_pretrain_aux.py" in words else ["--test_tasks=none"]
    flags = [*SHORT, *tests, *(["--skip_from=2"] if re.search("infocse|aux", " ".join(words)) else [])]
    config = words[words.index("--config") + 1] if "--config" in words else None
    start = command_line.read_config(config).get("model_name_or_path", "") if config else ""
    there = "--model_name_or_path" in words or Path(start).is_dir()
    return flags if there else [*flags, "--model_name_or_path=MODEL"]


def call(words):
    """`python ...` as typed, in this process."""
    script, rest = (words[2], words[3:]) if words[1] == "-m" else (words[1], words[2:])
    with mock.patch.object(sys, "argv", [script, *rest]):
        if words[1] == "-m":
            runpy.run_module(script, run_name="__main__")
        else:
            runpy.run_path(str(ROOT / script), run_name="__main__")


def parse(words):
    """`python ...` until its flags are read and, of a training script, its checkpoint or text is asked for."""
    if "--help" in words:
        try:
            call(words)
        except SystemExit as leaving:
            assert not leaving.code, words
        return
    trains = words[1].startswith("run_")
    with only_parsing():
        try:
            call(_given(words, ["--bf16=false", "--use_cpu=true"]) if trains else words)
        except Parsed:
            return
    raise AssertionError(f"did not read its flags: {' '.join(words)}")


@contextmanager
def only_parsing():
    """Raise Parsed where a command would begin its work."""
    original = argparse.ArgumentParser.parse_args

    def parse_args(self, *args, **named):
        original(self, *args, **named)
        raise Parsed

    def reached(*_, **__):
        raise Parsed

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_args),
        mock.patch.object(training.sentence_run, "load_tokenizer", reached),
        mock.patch.object(command_line, "find_files", reached),
    ):
        yield
