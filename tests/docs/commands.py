"""The commands of a Markdown page: cheap ones run on tiny data, the others parse their flags."""

import argparse
import re
import runpy
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest
from accelerate.commands.launch import launch_command_parser

from tests.sources import ROOT
from training.config_files import read_config

RUN = re.compile(
    r"""python\ (run_\w+\.py\ .*(MY_SENTENCES|MY_PARAGRAPHS|toy/sentences)
    | -m\ (eval|report)\ .*--dev_file\b
    | -m\ eval\.compare\ (--list|runs/my-)
    | -m\ adapt\ RUN
    | -m\ search\ (build\ MY_FOLDER|query)
    | -m\ eval\.encode_corpus\ CORPUS\ .*--output\ vectors$
    | -m\ export\ runs/(?!.*--push_to_hub)
    | -m\ \w+\ .*(--list|--dry_run)$)""",
    re.VERBOSE,
)
# tests/cli/test_stranger.py makes the method and runs this
TOY = "python run_unsup.py --method toy --help"
SHORT = """--max_steps=2 --eval_steps=2 --save_steps=2 --per_device_train_batch_size=8
    --max_length=24""".split()
SHORT += "--use_cpu=true --disable_tqdm=true --bf16=false".split()
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(python [^`]*\s--[^`]*)`")


class Parsed(BaseException):
    """The command has parsed its flags and would start its work."""


def blocks(text, language):
    """Contents of a page's fenced blocks of a language ("sh", or "" for unmarked ones)."""
    return [content for marked, content in _BLOCK.findall(text) if marked == language]


def commands(text):
    """Every command of a page's sh blocks, and every inline command with flags."""
    lines = "".join(blocks(text, "sh")).replace("\\\n", " ").splitlines()
    shown = [shlex.join(shlex.split(line, comments=True)) for line in lines]
    inline = [" ".join(command.split()) for command in _INLINE.findall(_BLOCK.sub("", text))]
    return [command for command in (*shown, *inline) if command]


def check(command):
    """Run a command or parse its flags; AssertionError or SystemExit if it is wrong."""
    command = re.sub(r"^(\w+=\S+ )+", "", command)  # environment variables
    words = shlex.split(command)
    for word in words:
        ours = word.startswith(("configs/", "tests/"))
        assert not ours or (ROOT / word).exists(), f"{word} does not exist"
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in words[1:]:
            name, is_variable, _ = word.partition("=")
            known = rf"^{name} \?=" if is_variable else rf"^{name}:"
            assert re.search(known, makefile, re.MULTILINE), f"make has no {name}"
    elif words[0] == "accelerate":
        launched = launch_command_parser().parse_args(words[2:])
        assert (ROOT / launched.config_file).exists(), command
        module = ["-m"] if launched.module else []
        parse(["python", *module, launched.training_script, *launched.training_script_args])
    elif RUN.match(command) and "/all-MiniLM" not in command:  # which is on the hub
        call(_shortened(words) if words[1].startswith("run_") else words)
    elif command != TOY and words[1:3] != ["-m", "pytest"]:
        assert words[0] == "python", f"unknown program: {command}"
        parse(words)


def _shortened(words):
    """A training command made short; a checkpoint on the hub is replaced by MODEL."""
    flags, command, start = list(SHORT), " ".join(words), ""
    if "run_pretrain_aux.py" not in words:
        flags.append("--test_tasks=none")
    if re.search("infocse|aux", command):
        flags.append("--skip_from=2")
    if "--config" in words:
        start = read_config(words[words.index("--config") + 1]).get("model_name_or_path", "")
    if "--model_name_or_path" not in words and not Path(start).is_dir():
        flags.append("--model_name_or_path=MODEL")
    replaced = "|".join(flag.split("=")[0] for flag in flags)
    return [*shlex.split(re.sub(rf" ({replaced}) \S+", "", command)), *flags]


def call(words):
    """Run `python ...` in this process."""
    module = words[1] == "-m"
    with mock.patch.object(sys, "argv", words[2:] if module else words[1:]):
        if module:
            runpy.run_module(words[2], run_name="__main__")
        else:
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")


def parse(words):
    """Run `python ...` until its flags are parsed; a helper's parser has no --help."""
    original = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self, *args, **named):
        parsed, unknown = original(self, *args, **named)
        if self.add_help and not unknown:
            raise Parsed
        return parsed, unknown

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse_known_args):
        with pytest.raises((Parsed, SystemExit)) as left:
            call(words)
    helped = {"--help", "--help_all"} & {*words} and not getattr(left.value, "code", 1)
    assert left.type is Parsed or helped, f"did not parse its flags: {' '.join(words)}"
