"""One training step of every objective on the pretend device, with generated models and text."""

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
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from bench.pair import WORDS, draw_lengths, tokenizer_of
from bench.pretend.device import LOG, move, pretending
from common.files import ROOT
from data.source import source_of
from data.tokenised import load_tokenised
from data.tokenizer import SPECIAL
from models.loading import load_tokenizer
from training import pretrain_run, sentence_run
from training.faults import FirstBad
from training.methods import STAGE_ONE as STAGE_ONE_SCRIPT
from training.methods import load_method, method_names, script_of
from training.settings import fill, kinds_of

STAGE_ONE = "stage 1"
FAMILIES = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM)}
STEPS = 2  # the second is counted: the first creates the optimizer's state
_NAMED = {"nli": "consert-joint-mini"}  # other configurations have the method's name


@dataclass(frozen=True)
class Case:
    """One row: an objective and how its step is computed."""

    objective: str
    family: str
    packed: bool
    precision: str


def cases() -> list[Case]:
    """Every objective and stage 1 with both families, packed and padded, in both precisions."""
    names = [*method_names(), STAGE_ONE]
    return [Case(*each) for each in itertools.product(names, FAMILIES, (True, False), ("float32", "bf16"))]


def rows(objectives: list[str], layers: int, batch: int, length: int, half: bool = False) -> Iterator[dict]:
    """The operations of a step of each case; synchronisations and mixed devices also by place.

    `half` runs half of the cases, in which every two values of family, path and precision still occur together.
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
    """Tiny models of both families with a tokenizer, and text with realistic sentence lengths."""

    def __init__(self, folder: Path, layers: int, batch: int, length: int) -> None:
        self.folder, self.layers, self.batch, self.length = folder, layers, batch, length
        torch.manual_seed(0)
        tokenizer = tokenizer_of(WORDS)
        size = {"hidden_size": 24, "num_hidden_layers": layers, "num_attention_heads": 12, "intermediate_size": 48,
                "vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 0}  # fmt: skip
        for name, (config, kind) in FAMILIES.items():
            kind(config(**size)).save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        generator = np.random.default_rng(0)
        lengths = draw_lengths(generator, 4 * max(batch, 100))
        lines = [" ".join(generator.choice(WORDS, length - 2)) for length in lengths]
        (folder / "text").write_text("\n".join(lines) + "\n")
        pairs = [f"{one}\t{two}\tneutral" for one, two in itertools.pairwise(lines)]
        (folder / "pairs").write_text("\n".join(["premise\thypothesis\tlabel", *pairs]) + "\n")

    def parts(self, case: Case):
        """The model and the collator of a case, built as in the training scripts."""
        if case.objective == STAGE_ONE:
            return self._stage_one(case)
        method = load_method(case.objective)
        config = ROOT / "configs" / f"{_NAMED.get(case.objective, case.objective.replace('_', '-') + '-mini')}.yaml"
        script = script_of(case.objective)
        file = self.folder / ("pairs" if method.labels else "text")
        small = {"generator": self.folder / case.family, "aux_init": "random", "skip_from": self.layers // 2,
                 "queue_size": 4 * self.batch}  # fmt: skip
        known = {field.name for kind in kinds_of(script, method) for field in fields(kind)}
        flags = self._flags(case, file, {name: value for name, value in small.items() if name in known})
        settings = fill(script, {"config": config, **flags})
        tokenizer = load_tokenizer(settings.model_args.model_name_or_path)
        text = load_tokenised(source_of(settings.data_args, method.labels), tokenizer, settings.data_args.cache_dir)
        trainer, _ = sentence_run.build(settings, method.tokenizer(settings.method_args, tokenizer), text, None)
        return trainer.model, trainer.data_collator

    def _stage_one(self, case: Case):
        settings = fill(STAGE_ONE_SCRIPT, self._flags(case, self.folder / "text", {"skip_from": self.layers // 2}))
        _, tokenizer, blocks = pretrain_run.load_text(settings)
        trainer, _ = pretrain_run.build(settings, tokenizer, blocks)
        return trainer.model, trainer.data_collator

    def _flags(self, case: Case, file: Path, more: dict[str, object]) -> dict[str, object]:
        return {"model_name_or_path": self.folder / case.family, "packed": case.packed, "train_file": file,
                 "bf16": case.precision == "bf16", "max_length": self.length, "cache_dir": self.folder / "cache",
                 "output_dir": self.folder / "run", "use_cpu": True, "report_to": "none",
                 "per_device_train_batch_size": self.batch, **more}  # fmt: skip


def take_steps(model, collator, bf16: bool, batch: int):
    """Take steps like the Trainer; the log covers the last one, after the batch's copy, which belongs to the loader."""
    with pretending() as log:
        log.reset()
        move(model).train()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)
        bad = FirstBad(torch.device("cuda:0"))
        for step in range(STEPS):
            inputs = collator([(0, step * batch + row, step) for row in range(batch)])
            log.reset()
            inputs = send_to_device(inputs, "cuda:0", non_blocking=True)
            log.reset(active=True)
            with torch.autocast("cuda", dtype=torch.bfloat16) if bf16 else nullcontext():
                output = model(**inputs)
            output.loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)  # torch's default on a GPU
            bad.note(step + 1, [*output.terms.values(), norm])
            optimizer.step()
            optimizer.zero_grad()
            model.after_step()
            log.active = False
    return LOG
