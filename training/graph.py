"""Forward and backward as one CUDA graph: the host launches one graph, not a thousand kernels.

A bert-base step at 64 x 32 runs faster on a GPU than a host can launch its kernels. A graph records
them once for every shape of batch and replays them. Clipping and AdamW stay outside: capturing them
too gained nothing (12.15 against 12.14 ms for SimCSE on an H200); results/gpu-*.md has the times.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from common.errors import BadInput
from models import fast
from models.training import TrainingOutput
from training.run_arguments import recomputes
from training.trainer import EmbeddingTrainer

# Torch prefers cuDNN's, which is slower at 32 tokens: 16.7 -> 15.6 ms for InfoCSE on an H200.
_ATTENTION = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_WARM = 3  # passes before a capture: libraries allocate and choose their kernels in the first ones


class GraphedStep:
    """Forward and backward of batches; each shape of batch is captured when it first comes.

    A capture changes neither weights and buffers nor random numbers. On a CPU nothing is captured.
    Every graph writes its own gradients, so nothing is zeroed or summed: 17.8 -> 16.7 ms for
    InfoCSE on an H200.

    Args:
        model: on its device.
        precision: opens the autocast context.
    """

    def __init__(self, model, precision: Callable[[], AbstractContextManager]) -> None:
        self.model, self.precision = model, precision
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.captured: dict[tuple, tuple[dict[str, Tensor], Callable[[], TrainingOutput]]] = {}

    def __call__(self, inputs: dict) -> TrainingOutput:
        """Set the gradients of a batch on the model's device.

        The returned tensors are valid until the next call.
        """
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        shares = fast.shares_of(tensors)
        shape = shares, *((name, value.shape, value.dtype) for name, value in tensors.items())
        if shape not in self.captured:
            copies = copy.deepcopy(tensors)
            self.captured[shape] = copies, self._capture(copies, shares)
        copies, replay = self.captured[shape]
        for name, value in tensors.items():
            copies[name].copy_(value, non_blocking=True)
        return replay()

    def _take(self, inputs: dict, shares: fast.Shares) -> TrainingOutput:
        self._attach([None] * len(self.trained))
        with self.precision(), fast.fixed(shares):
            output = self.model(**inputs)
        output.loss.backward()
        return TrainingOutput(loss=output.loss.detach(), terms=output.terms)

    def _attach(self, gradients: Sequence[Tensor | None]) -> None:
        for parameter, gradient in zip(self.trained, gradients, strict=True):
            parameter.grad = gradient

    def _capture(self, inputs: dict, shares: fast.Shares) -> Callable[[], TrainingOutput]:
        device = self.trained[0].device
        if device.type != "cuda":
            return lambda: self._take(inputs, shares)
        random = torch.cuda.get_rng_state(device)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside), sdpa_kernel(_ATTENTION):
            for _ in range(_WARM):
                self._take(inputs, shares)
        torch.cuda.current_stream(device).wait_stream(aside)
        torch.cuda.set_rng_state(random, device)
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        graph = torch.cuda.CUDAGraph()
        # The loader's threads may pin memory.
        captured = torch.cuda.graph(graph, capture_error_mode="thread_local")
        with captured, sdpa_kernel(_ATTENTION):
            output = self._take(inputs, shares)
        gradients = [parameter.grad for parameter in self.trained]

        def replay() -> TrainingOutput:
            graph.replay()
            self._attach(gradients)  # the Trainer sets them to None after every step
            return output

        return replay


class GraphedTrainer(EmbeddingTrainer):
    """An EmbeddingTrainer whose forward and backward are CUDA graphs, see `GraphedStep`.

    Raises:
        BadInput: several processes, accumulation, fp16, compilation, recomputed layers, or an
            objective whose steps a replay would not repeat.
    """

    def __init__(self, model, args, *others, **more) -> None:
        objectives = getattr(model, "objectives", ())  # stage 1 has none
        reasons = [objective.not_replayed for objective in objectives if objective.not_replayed]
        alone = args.world_size == 1 and args.gradient_accumulation_steps == 1
        if not alone or args.fp16 or args.torch_compile or recomputes(args):
            reasons.append(
                "it needs one process, and excludes --gradient_accumulation_steps, --fp16, "
                "--torch_compile and --activation_checkpointing"
            )
        if reasons:
            raise BadInput(f"--cuda_graph: not supported here; {reasons[0]}")
        super().__init__(model, args, *others, **more)
        self._step = GraphedStep(self.model, self.accelerator.autocast)

    def training_step(self, model, inputs, num_items_in_batch=None) -> Tensor:
        """Forward and backward."""
        self.model.train()
        if num_items_in_batch is None:
            output = self._step(inputs)
        else:
            output = self._step({**inputs, "num_items_in_batch": num_items_in_batch})
        self.count_terms(output.terms, inputs, num_items_in_batch)
        return output.loss.clone()
