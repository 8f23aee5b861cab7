import os
from dataclasses import field, fields, make_dataclass
from itertools import pairwise
from typing import get_args, get_type_hints

import pytest
import yaml

from common.arguments import DataArguments, ModelArguments, PretrainArguments, SentenceArguments
from common.command_line import check_words, parse, peek, read_config
from common.errors import BadInput
from common.files import _Strings, files_of, find_files
from common.ranges import Count, CountOrZero, Positive, Rate, Share, Weight, ranges_of
from tests.refusals import refused
from training.flags import load_method, method_names
from training.record import is_longer
from training.run_arguments import RunArguments

METHODS = [load_method(name).arguments for name in method_names()]
TYPES = (ModelArguments, SentenceArguments, RunArguments)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"

    def write(content):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def parsed(config_text, *flags, config, types=TYPES):
    return parse(["--config", config(config_text), "--use_cpu", *flags], types)


def refusal(config_text, *flags, config):
    return refused(parsed, config_text, *flags, config=config)


def test_without_a_file_the_defaults_are_the_family_s():
    model, data, run = parse(["--use_cpu"], TYPES)
    assert (model.pooling, model.dropout, data.max_length, data.dev) == ("cls_before_pooler", None, 32, "stsb")
    assert (run.learning_rate, run.per_device_train_batch_size, run.num_train_epochs) == (3e-5, 64, 1.0)
    assert (run.eval_steps, run.dataloader_drop_last, run.remove_unused_columns) == (125, True, False)
    assert (run.weight_decay, run.warmup_steps, run.max_grad_norm, run.seed) == (0.0, 0, 1.0, 42)
    assert run.lr_scheduler_type == "linear"


def test_flags_override_the_file(config):
    text = "max_length: 48\npooling: avg\nseed: 7\n"
    model, data, run = parsed(text, "--seed", "9", "--pooling=cls", config=config)
    assert (data.max_length, model.pooling, run.seed) == (48, "cls", 9)
    argv = ["--seed", "9", "--use_cpu", f"--config={config(text)}"]
    assert parse(argv, TYPES)[2].seed == 9, "wherever --config stands"


def test_values_in_a_file_are_parsed_like_flags(config):
    text = """learning_rate: 3e-5, max_length: 010, method: no, run_name: 12:30, model_name_or_path: 007, dropout: 0,
        bf16_full_eval: no, dry_run: yes, save_steps: 50, output_dir: off, dev_file: null, dev: none"""
    model, data, run = parsed("\n".join(line.strip() for line in text.split(",")), config=config)
    assert (run.learning_rate, data.max_length, model.method, run.run_name) == (3e-5, 10, "no", "12:30")
    assert (model.model_name_or_path, data.dev_file, run.output_dir, data.dev) == ("007", "null", "off", "none")
    assert model.dropout == 0.0 and isinstance(model.dropout, float)
    assert (run.bf16_full_eval, data.dry_run, run.save_steps) == (False, True, 50)


@pytest.mark.parametrize(("written", "value"), [("false", False), ("no", False), ("True", True), ("1", True)])
def test_switches_that_are_on_can_be_turned_off(config, written, value):
    types = (PretrainArguments, DataArguments, RunArguments)
    assert parsed(f"whole_words: {written}", config=config, types=types)[0].whole_words is value
    assert parsed("", "--whole_words", written, config=lambda _: config("seed: 1"), types=types)[0].whole_words is value


def test_lists(config):
    assert parsed("train_file: [a.txt, b.txt]", config=config)[1].train_file == ["a.txt", "b.txt"]
    assert parsed("train_file:\n- a b.txt\n- -1\n", config=config)[1].train_file == ["a b.txt", "-1"]
    assert parsed("train_file: one.txt", config=config)[1].train_file == ["one.txt"]
    assert parsed("train_file: [a]", "--train_file", "c", "d", config=config)[1].train_file == ["c", "d"]
    assert parsed("test_tasks: [STS12, STS-B]", config=config)[1].test_tasks == ["STS12", "STS-B"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_lenght: 32", "unknown key 'max_lenght'; did you mean 'max_length'?"),
        ("learning-rate: 1", "unknown key 'learning-rate'; did you mean 'learning_rate'?"),
        ("xyzzy: 32", "unknown key 'xyzzy'"),
        ("config: other.yaml", "unknown key 'config'"),
        ("seed: 1\nmax_length: 2\nseed: 1", "'seed' is repeated"),
        ("model:\n  pooling: avg", "'model' needs a value"),
        ("lr_scheduler_kwargs:\n  a: 2", "needs a value or a list of values; quote a JSON object"),
        *((text, "'pooling' needs a value") for text in ("pooling:\n  name: avg", "pooling:", "pooling: ''")),
        *((f"train_file: {text}", "'train_file' needs a value") for text in ("[[a]]", "[]", "[a, '']")),
        *((text, "tag") for text in ("max_length: !!int 32", "pooling: !!python/object/apply:os.getcwd []",
                                     "pooling: !custom avg")),
        ("? [a, b]\n: c", "the key is not a string; quote it"),
        *((text, "must be a YAML mapping") for text in ("- pooling", "pooling", "", "# only a comment")),
        *((text, "not a YAML file")
          for text in ("a: 1\n---\nb: 2", "pooling: [avg", "pooling: a: b", "pooling: avg\n\tseed: 1",
                       'pooling: "\\UFFFFFFFF"', 'pooling: "\\U00110000"', "pooling: &a [*a]", "pooling: *nothing",
                       "pooling: " + "[" * 20_000, "pooling: zwölf".encode("latin-1"), b"pooling: \x00",
                       "pooling: avg".encode("utf-16"))),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_name_and_key(config, text, said):
    message = refusal(text, config=config)
    assert message.startswith(config(text) + ": ")
    assert said in message


def test_aliases_of_aliases_do_not_explode(config):
    letters = "abcdefghijklmnopqrstuvwxyz"
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(letters))
    with pytest.raises(BadInput, match="'b' needs a value"):
        read_config(config(bomb))


@pytest.mark.parametrize("place", ["missing.yaml", "", "x" * 300])
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path, place):
    with pytest.raises(BadInput, match="cannot be read"):
        parse(["--config", str(tmp_path / place)], TYPES)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(BadInput, match=r"pipe\.yaml: not a regular file"):
        parse(["--config", str(tmp_path / "pipe.yaml")], TYPES)


def test_each_key_is_compared_with_few_others():
    """Comparing each with all would take a minute for a file of some ten thousand keys."""
    compared = []

    class Word(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    class Counting(_Strings):
        def compose_scalar_node(self, anchor):
            node = super().compose_scalar_node(anchor)
            node.value = Word(node.value)
            return node

    found = yaml.load("".join(f"key_{n}: {n}\n" for n in range(500)), Loader=Counting)
    assert len(found) == 500
    assert len(compared) < 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("max_length", value) for value in ("3.5", "many", "3e1", "1" + "0" * 5000)),
        ("learning_rate", "fast"), ("dropout", "0,1"), ("dry_run", "maybe"), ("dev", "sick"), ("seed", "[1, 2]"),
        ("lr_scheduler_type", "stairs"), ("eval_strategy", "sometimes"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused_by_key(config, key, value):
    assert key in refusal(f"{key}: {value}", config=config) or key in ("lr_scheduler_type", "eval_strategy")
    if not value.startswith("["):
        refusal("seed: 1", f"--{key}", value, config=config)


def test_a_list_cannot_smuggle_in_another_flag(config):
    assert "train_file" in refusal("train_file: [a.txt, --seed, '7']", config=config)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--max_lenght", "3"], "unknown argument '--max_lenght'; did you mean '--max_length'?"),
        (["--max_lenght=3"], "unknown argument '--max_lenght=3'; did you mean '--max_length'?"),
        (["--xyzzy"], "unknown argument '--xyzzy'"),
        (["stray"], "unknown argument 'stray'"),
        (["--max_len", "3"], "unknown argument '--max_len'"),
        (["--seed"], "--seed: expected one argument"),
        (["--config"], "--config: expected one argument"),
    ],
)
def test_bad_flags_are_refused_by_name(flags, said):
    assert said in refused(parse, ["--use_cpu", "yes", *flags], TYPES)


def test_a_flag_replaces_the_alternatives_in_the_file(config):
    text = config("train_file: [a.txt]\nmodel_name_or_path: m\ndev_file: pairs.tsv\nseed: 3\n")
    known = {f.name: str(f.type) for kind in TYPES for f in fields(kind)} | {"config_name": "str"}
    for flag, gone in {"--dataset_name=o/n": "train_file", "--config_name=c": "model_name_or_path",
                       "--dev=none": "dev_file", "--dev_beir=b": "dev_file", "--seed=4": None}.items():  # fmt: skip
        words = check_words([f"--config={text}", flag], known)
        left = {"train_file", "model_name_or_path", "dev_file", "seed"} - {gone}
        assert {word[2:].split("=")[0] for word in words if word.startswith("--")} == left | {flag[2:].split("=")[0]}
    assert peek([f"--config={text}", "--config_name=c"], "model_name_or_path") is None
    assert "dev_file" in " ".join(check_words([f"--config={text}", "--dev=none", "--dev_file=x"], known)), (
        "for the error"
    )


def test_a_home_is_found_where_the_shell_leaves_it_alone(config, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    path = config("cache_dir: ~/cache\ntrain_file: [~/a.txt, b~/c.txt]\n")
    assert read_config(path) == {"cache_dir": "/home/me/cache", "train_file": ["/home/me/a.txt", "b~/c.txt"]}
    assert check_words(["--output_dir=~/run"], {"output_dir": "str"}) == ["--output_dir=/home/me/run"]
    assert peek(["--output_dir=~/run"], "output_dir") == "/home/me/run"


def test_peek_reads_one_flag_before_the_others_are_known(config):
    path = config("method: infocse\nseed: 3\n")
    assert peek(["--config", path], "method") == "infocse"
    assert peek(["--unknown", "x", "--method", "simcse", "--config", path], "method") == "simcse"
    assert peek([f"--config={path}", "--method=simcse"], "method") == "simcse"
    assert peek(["--method", "simcse"], "method") == "simcse"
    assert peek(["--config", path], "pooling") is None
    assert peek([], "method") is None
    with pytest.raises(BadInput, match=r"'method' takes one value, not \['infocse', 'simcse'\]"):
        peek(["--config", config("method: [infocse, simcse]\n")], "method")
    with pytest.raises(BadInput, match="cannot be read"):
        peek(["--config", path + "x"], "method")


def test_files_are_found_as_given_and_below_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpora" / "text").mkdir(parents=True)
    for name in ("here.txt", "corpora/there.txt", "corpora/text/deep.txt", "corpora/here.txt"):
        (tmp_path / name).write_text("x")
    found = find_files(["here.txt", "there.txt", "text/deep.txt", str(tmp_path / "here.txt")], "corpora")
    assert [*map(str, found)] == ["here.txt", "corpora/there.txt", "corpora/text/deep.txt", str(tmp_path / "here.txt")]
    with pytest.raises(BadInput, match=r"'gone\.txt': no file or folder at gone\.txt or at corpora/gone\.txt"):
        find_files(["here.txt", "gone.txt"], "corpora")
    with pytest.raises(BadInput, match="--train_file is missing"):
        find_files([], "corpora")


def test_a_folder_is_all_its_files_in_the_order_of_their_paths(tmp_path):
    shards = tmp_path / "corpora" / "shards"
    names = ["b/2.txt", "b/1/deep.txt", "b.txt", "a.txt.gz", ".hidden", ".git/x", "c.txt", "cache/key/ids", "run/x.txt"]
    for name in names:
        (shards / name).parent.mkdir(parents=True, exist_ok=True)
        (shards / name).write_text("x")
    (shards / "empty").mkdir()
    found = find_files(["shards"], str(tmp_path / "corpora"), (str(shards / "cache"), shards / "b" / ".." / "run"))
    assert [str(path.relative_to(shards)) for path in found] == "a.txt.gz b/1/deep.txt b/2.txt b.txt c.txt".split()
    with pytest.raises(BadInput, match="empty: the folder contains no files"):
        find_files(["shards/empty"], str(tmp_path / "corpora"))


def test_links_in_a_folder_are_followed_and_loops_and_broken_ones_are_not_passed_over(tmp_path):
    for name in ("text/a.txt", "elsewhere/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    (tmp_path / "text" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "text" / "gone").symlink_to(tmp_path / "nowhere")
    names = [str(path.relative_to(tmp_path / "text")) for path in files_of(tmp_path / "text")]
    assert names == ["a.txt", "gone", "linked/b.txt"]
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "text")
    with pytest.raises(BadInput, match="linked/back: a link to one of its parent folders"):
        files_of(tmp_path / "text")


@pytest.mark.parametrize(
    "flag",
    """per_device_train_batch_size=-3 per_device_train_batch_size=0 learning_rate=nan learning_rate=-1e-5
    learning_rate=inf weight_decay=nan max_grad_norm=-1 adam_beta1=1.5 adam_beta2=1 num_train_epochs=0 max_steps=0
    max_steps=-7 gradient_accumulation_steps=0 save_steps=-1 eval_steps=nan save_total_limit=0 seed=-1
    auto_find_batch_size=true save_only_model=true enable_jit_checkpoint=true""".split(),
)
def test_training_arguments_out_of_range_are_refused_by_name(flag):
    with pytest.raises(BadInput, match=f"^--{flag.partition('=')[0]}"):
        parse(["--use_cpu", f"--{flag}"], (RunArguments,))


def test_a_number_that_is_none_is_refused_in_every_group(config):
    for value in ("nan", "inf"):
        assert refusal("seed: 1", "--dropout", value, config=config) == f"--dropout {value}: must be a finite number"


@pytest.mark.parametrize("kind", [ModelArguments, PretrainArguments, *METHODS], ids=lambda k: k.__module__ + k.__name__)
def test_a_number_out_of_the_range_of_its_type_is_refused_by_name(kind):
    """Every number of a method says its range: nothing else would look at a negative weight."""
    hints = get_type_hints(kind, include_extras=True)
    numbers = {name for name, plain in get_type_hints(kind).items() if {int, float} & {plain, *get_args(plain)}}
    ranged = {name for name in numbers if [*ranges_of(hints[name])]}
    assert numbers - ranged <= {"hard_negative_weight", "skip_from"}  # a logarithm; a layer, looked up in the model
    for name in ranged:
        with pytest.raises(BadInput, match=f"--{name} -1(.0)?: must be "):
            parse([f"--{name}=-1"], (kind,))


@pytest.mark.parametrize(
    ("kind", "refused", "taken"),
    [(Weight, "-0.1", "0"), (Positive, "0", "1e-9"), (Rate, "1", "0"), (Share, "0", "0.999"), (Share, "1", "1e-9"),
     (Count, "0", "1"), (CountOrZero, "-1", "0"), (Rate | None, "1", "0"), (list[Rate], "1", "0")],
)  # fmt: skip
def test_the_ends_of_the_ranges(kind, refused, taken):
    arguments = make_dataclass("Arguments", [("value", kind, field(default=None))])
    assert parse([f"--value={taken}"], (arguments,))[0].value in (float(taken), [float(taken)])
    with pytest.raises(BadInput, match=f"--value {refused}(.0)?: must be "):
        parse([f"--value={refused}"], (arguments,))


def test_a_flag_given_twice_is_refused(config):
    assert "--max_length: given twice" in refusal("seed: 1", "--max_length=3", "--max-length", "4", config=config)
    assert "--config: given twice" in refusal("seed: 1", "--config", "other.yaml", config=config)


def test_more_steps_may_be_asked_for_only_when_the_learning_rate_is_constant():
    old = {"lr_scheduler_type": "constant", "max_steps": 10}
    assert is_longer(old, old | {"max_steps": 11})
    for other in ({"max_steps": 9}, {"max_steps": 10}, {"max_steps": -1}, {"lr_scheduler_type": "linear"}):
        assert not is_longer(old, old | {"max_steps": 11} | other)
    for every, same in ((5, True), (2, True), (3, False), (0.5, False)):
        selecting = old | {"dev": "stsb", "eval_steps": every}
        assert is_longer(selecting, selecting | {"max_steps": 20}) is same
    late = old | {"dev": "stsb", "eval_steps": 2, "eval_delay": 11}
    assert not is_longer(late, late | {"max_steps": 20}), "the first run was evaluated at its end, before the delay"
    linear = old | {"lr_scheduler_type": "linear"}
    assert not is_longer(linear, linear | {"max_steps": 11})
