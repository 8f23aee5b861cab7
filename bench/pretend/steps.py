"""One training step of every objective on the pretend device, from models and text made here."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import send_to_device
from transformers import BertConfig, BertForMaskedLM, BertTokenizer, RobertaConfig, RobertaForMaskedLM, set_seed

from bench.pair import LENGTHS
from bench.pretend.device import LOG, moved, pretending
from common.arguments import DataArguments, PretrainArguments
from common.command_line import parse
from data.source import source_of
from data.tokenised import load_tokenised
from models.loading import load_tokenizer
from training import pretrain_run
from training.assembly import build_model, make_collator
from training.faults import FirstBad
from training.registry import argument_groups, load_method, method_names
from training.run_arguments import RunArguments

STAGE_ONE = "stage 1"
FAMILIES = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM)}
STEPS = 2  # the second is counted: the first makes the optimizer's state
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = ["".join(letters) for letters in itertools.product("abcdefghijkl", repeat=3)]
_CONFIGS = Path(__file__).parents[2] / "configs"
_NAMED = {"nli": "consert-joint-mini"}  # the others' configurations have the method's name


@dataclass(frozen=True)
class Case:
    """One row: which step is taken, and how."""

    objective: str
    family: str
    packed: bool
    precision: str


def cases() -> list[Case]:
    """Every objective and stage 1, both families, packed and padded, both precisions."""
    names = [*method_names(), STAGE_ONE]
    return [Case(*each) for each in itertools.product(names, FAMILIES, (True, False), ("float32", "bf16"))]


def rows(objectives: list[str], layers: int, batch: int, length: int, half: bool = False) -> Iterator[dict]:
    """What a step of each case asks of the device; its synchronisations and mixed devices by place beside it.

    With `half` of the cases every two values of family, path and precision still meet.
    """
    with tempfile.TemporaryDirectory() as folder:
        materials = Materials(Path(folder), layers, batch, length)
        for case in cases():
            odd = (case.family == "bert") ^ case.packed ^ (case.precision == "bf16")
            if (not objectives or case.objective in objectives) and not (half and odd):
                log = take_steps(*materials.parts(case), case.precision == "bf16", batch)
                yield vars(case) | {
                    "kernels": log.kernels.total(), "views": log.views.total(),
                    "synchronisations": log.synchronisations.total(), "mixed_devices": log.mixed.total(),
                    "places": dict(log.synchronisations | log.mixed),
                }  # fmt: skip


class Materials:
    """Tiny models of both families, with their tokenizer, and a text of sentences with real lengths."""

    def __init__(self, folder: Path, layers: int, batch: int, length: int) -> None:
        self.folder, self.layers, self.batch, self.length = folder, layers, batch, length
        torch.manual_seed(0)
        words = BertTokenizer(vocab={word: i for i, word in enumerate(_SPECIAL + _WORDS)})
        size = {"hidden_size": 24, "num_hidden_layers": layers, "num_attention_heads": 12, "intermediate_size": 48,
                "vocab_size": len(_SPECIAL) + len(_WORDS), "pad_token_id": 0}  # fmt: skip
        for name, (config, kind) in FAMILIES.items():
            kind(config(**size)).save_pretrained(folder / name)
            words.save_pretrained(folder / name)
        generator = np.random.default_rng(0)
        drawn = generator.choice(len(LENGTHS), 4 * max(batch, 100), p=np.array(LENGTHS) / sum(LENGTHS))
        lines = [" ".join(generator.choice(_WORDS, count - 2)) for count in drawn]
        (folder / "text").write_text("\n".join(lines) + "\n")
        pairs = [f"{one}\t{two}\tneutral" for one, two in itertools.pairwise(lines)]
        (folder / "pairs").write_text("\n".join(["premise\thypothesis\tlabel", *pairs]) + "\n")

    def parts(self, case: Case):
        """The model and the collator of a case, made as the training scripts make them."""
        if case.objective == STAGE_ONE:
            return self._stage_one(case)
        method = load_method(case.objective)
        config = _CONFIGS / f"{_NAMED.get(case.objective, case.objective.replace('_', '-') + '-mini')}.yaml"
        groups = argument_groups(method)
        file = self.folder / ("pairs" if method.labels else "text")
        small = {"generator": self.folder / case.family, "aux_init": "random", "skip_from": self.layers // 2,
                 "queue_size": 4 * self.batch}  # fmt: skip
        known = {field.name for kind in groups for field in fields(kind)}
        given = self._flags(case, file) | {name: value for name, value in small.items() if name in known}
        argv = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        model_args, method_args, data_args, args = parse(["--config", str(config), *argv], groups, "")
        tokenizer = load_tokenizer(model_args.model_name_or_path)
        text = load_tokenised(source_of(data_args, method.labels), tokenizer, data_args.cache_dir)
        set_seed(args.seed)
        tokenizer = method.tokenizer(method_args, tokenizer)
        model = build_model(method, method_args, model_args, tokenizer, args.bf16)
        return model, make_collator(method, method_args, data_args, text, tokenizer, model, args.seed)

    def _stage_one(self, case: Case):
        flags = self._flags(case, self.folder / "text") | {"skip_from": self.layers // 2}
        argv = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        groups = parse(argv, (PretrainArguments, DataArguments, RunArguments), "")
        _, tokenizer, blocks = pretrain_run.load_text(*groups)
        trainer, _ = pretrain_run.build(groups, tokenizer, blocks)
        return trainer.model, trainer.data_collator

    def _flags(self, case: Case, file: Path) -> dict[str, object]:
        return {"model_name_or_path": self.folder / case.family, "packed": case.packed, "train_file": file,
                "bf16": case.precision == "bf16", "max_length": self.length, "cache_dir": self.folder / "cache",
                "output_dir": self.folder / "run", "use_cpu": True, "report_to": "none",
                "per_device_train_batch_size": self.batch}  # fmt: skip


def take_steps(model, collator, bf16: bool, batch: int):
    """Some steps as the Trainer takes them; the log has the last one, from the batch's arrival to the optimizer's end.

    The copy of the batch is not in it: it belongs to the loader.
    """
    with pretending() as log:
        log.reset()
        moved(model).train()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)
        bad = FirstBad(torch.device("cuda:0"))
        for step in range(STEPS):
            made = collator([(0, step * batch + row, step) for row in range(batch)])
            log.reset()
            arrived = send_to_device(made, "cuda:0", non_blocking=True)
            log.reset(active=True)
            with torch.autocast("cuda", dtype=torch.bfloat16) if bf16 else nullcontext():
                output = model(**arrived)
            output.loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)  # as torch does on a GPU
            bad.note(step + 1, [*output.terms.values(), norm])
            optimizer.step()
            optimizer.zero_grad()
            model.after_step()
            log.active = False
    return LOG
