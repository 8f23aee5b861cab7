"""One training step of every objective, built as the scripts build it, on generated models and text."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from bench.pair import WORDS, draw_lengths, tokenizer_of
from common.files import ROOT
from data.source import source_of
from data.tokenised import load_tokenised
from data.tokenizer import SPECIAL
from models.loading import load_tokenizer
from training import builders
from training.methods import STAGE_ONE as STAGE_ONE_SCRIPT
from training.methods import load_method, script_of
from training.settings import fill, kinds_of
from training.stages import load_blocks
from training.trainer import EmbeddingTrainer

STAGE_ONE = "stage 1"
FAMILIES = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM)}
_NAMED = {"nli": "consert-joint-mini"}  # other configurations, if a method has any, have its name


@dataclass(frozen=True)
class Case:
    """One row: an objective and how its step is computed."""

    objective: str
    family: str
    packed: bool
    precision: str


class Materials:
    """Models of both families with random weights and a tokenizer, and text with realistic sentence
    lengths.

    Args:
        folder: an empty folder for them.
        layers: of the models; tiny ones unless `more` says otherwise.
        batch, length: sentences per step, and the most tokens per sentence.
        families: the models to make.
        more: other values of the models' configurations.
    """

    def __init__(
        self,
        folder: Path,
        layers: int,
        batch: int,
        length: int,
        families=tuple(FAMILIES),
        **more: object,
    ) -> None:
        self.folder, self.layers, self.batch, self.length = folder, layers, batch, length
        torch.manual_seed(0)
        tokenizer = tokenizer_of(WORDS)
        size = {
            "hidden_size": 24,
            "num_hidden_layers": layers,
            "num_attention_heads": 12,
            "intermediate_size": 48,
        }
        size |= {"vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 0, **more}
        for name in families:
            config, model = FAMILIES[name]
            model(config(**size)).save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        generator = np.random.default_rng(0)
        lengths = draw_lengths(generator, 4 * max(batch, 100))
        lines = [" ".join(generator.choice(WORDS, length - 2)) for length in lengths]
        (folder / "text").write_text("\n".join(lines) + "\n")
        pairs = [
            f"{premise}\t{hypothesis}\tneutral" for premise, hypothesis in itertools.pairwise(lines)
        ]
        (folder / "pairs").write_text("\n".join(["premise\thypothesis\tlabel", *pairs]) + "\n")

    def parts(self, case: Case, **flags: object):
        """The model and the collator of a case."""
        trainer = self.trainer(case, **flags)
        return trainer.model, trainer.data_collator

    def trainer(self, case: Case, **flags: object) -> EmbeddingTrainer:
        """The Trainer of a case, built as in the training scripts; `flags` replace those of the case."""
        if case.objective == STAGE_ONE:
            given = self._flags(case, self.folder / "text", {"skip_from": self.layers // 2} | flags)
            settings = fill(STAGE_ONE_SCRIPT, given)
            _, tokenizer, blocks = load_blocks(settings)
            return builders.build_pretraining(settings, tokenizer, blocks)[0]
        method = load_method(case.objective)
        config = (
            ROOT
            / "configs"
            / f"{_NAMED.get(case.objective, case.objective.replace('_', '-') + '-mini')}.yaml"
        )
        script = script_of(case.objective)
        file = self.folder / ("pairs" if method.labels else "text")
        small = {
            "generator": self.folder / case.family,
            "aux_init": "random",
            "skip_from": self.layers // 2,
        }
        small |= {"queue_size": 4 * self.batch}
        known = {
            field.name for arguments in kinds_of(script, method) for field in fields(arguments)
        }
        given = self._flags(
            case, file, {name: value for name, value in small.items() if name in known} | flags
        )
        given |= {"config": config} if config.is_file() else {"method": method.name}
        settings = fill(script, given)
        tokenizer = load_tokenizer(settings.model_args.model_name_or_path)
        text = load_tokenised(
            source_of(settings.data_args, method.labels), tokenizer, settings.data_args.cache_dir
        )
        return builders.build_training(
            settings, method.tokenizer(settings.method_args, tokenizer), text, None
        )[0]

    def _flags(self, case: Case, file: Path, more: dict[str, object]) -> dict[str, object]:
        return {
            "model_name_or_path": self.folder / case.family,
            "train_file": file,
            "cache_dir": self.folder / "cache",
            "output_dir": self.folder / "run",
            "packed": case.packed,
            "bf16": case.precision == "bf16",
            "max_length": self.length,
            "per_device_train_batch_size": self.batch,
            "use_cpu": True,
            "report_to": "none",
            **more,
        }
