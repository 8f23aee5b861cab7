"""A whole training step as one CUDA graph: the host launches one graph instead of over a thousand kernels.

Forward, backward, clipping and AdamW of a bert-base step at 64 x 32 start kernels faster than a host can launch them. A
graph records them once for every shape of batch and replays them; results/gpu-*.md has the times.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from common.errors import BadInput
from models.training import TrainingOutput
from training.trainer import EmbeddingTrainer

_WARM = 3  # passes before a capture: libraries allocate and choose their kernels in the first ones


class CapturedAdamW(torch.optim.AdamW):
    """AdamW whose `step` does nothing, because a `GraphedStep` has called `update` already."""

    def step(self, closure: None = None) -> None:
        """Do nothing; the Trainer calls it after the graph."""

    def update(self) -> None:
        """Take the step."""
        super().step()


class GraphedStep:
    """Forward, backward, clipping and AdamW of batches; each shape of batch is captured when it first comes.

    A capture changes neither weights, buffers and optimizer nor random numbers. On a CPU nothing is captured; all else
    is the same.

    Args:
        model: on its device.
        optimizer: of all trained parameters. Its learning rate becomes a tensor, which schedules fill in place.
        precision: opens the autocast context.
        max_norm: largest norm of the gradients; 0 does not clip.

    Attributes:
        norm: norm of the last step's gradients before clipping, ().
    """

    def __init__(
        self,
        model,
        optimizer: CapturedAdamW,
        precision: Callable[[], AbstractContextManager],
        max_norm: float = 1.0,
    ) -> None:
        self.model, self.optimizer, self.precision = model, optimizer, precision
        self.max_norm = max_norm or float("inf")
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.gradients = [torch.zeros_like(parameter) for parameter in self.trained]  # shared by all graphs
        self.captured: dict[tuple, tuple[dict, Callable[[], tuple]]] = {}
        self.norm = torch.zeros(())

    def __call__(self, inputs: dict) -> TrainingOutput:
        """Take a step on a batch on the model's device; the returned tensors are valid until the next call."""
        shape = tuple((name, tensor.shape, tensor.dtype, facts) for name, tensor, facts in _tensors(inputs))
        if shape not in self.captured:
            fixed = _copied(inputs)
            self.captured[shape] = fixed, self._capture(fixed)
        fixed, replay = self.captured[shape]
        for (_, target, _), (_, tensor, _) in zip(_tensors(fixed), _tensors(inputs), strict=True):
            target.copy_(tensor, non_blocking=True)
        output, self.norm = replay()
        return output

    def _gradients(self, inputs: dict) -> TrainingOutput:
        for parameter, gradient in zip(self.trained, self.gradients, strict=True):
            parameter.grad = gradient  # the Trainer sets it to None after every step
        torch._foreach_zero_(self.gradients)
        with self.precision():
            output = self.model(**inputs)
        output.loss.backward()
        return TrainingOutput(loss=output.loss.detach(), terms=output.terms)

    def _step(self, inputs: dict) -> tuple[TrainingOutput, Tensor]:
        output = self._gradients(inputs)
        norm = nn.utils.clip_grad_norm_(self.trained, self.max_norm, foreach=True)
        self.optimizer.update()
        return output, norm

    def _capture(self, inputs: dict) -> Callable[[], tuple[TrainingOutput, Tensor]]:
        device = self.gradients[0].device
        if device.type != "cuda":
            return lambda: self._step(inputs)
        random, buffers = torch.cuda.get_rng_state(device), [buffer.clone() for buffer in self.model.buffers()]
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM):
                self._gradients(inputs)
            self._prepare_optimizer(device)
        torch.cuda.current_stream(device).wait_stream(aside)
        torch.cuda.set_rng_state(random, device)
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # the loader's threads may pin memory
            results = self._step(inputs)

        def replay() -> tuple[TrainingOutput, Tensor]:
            graph.replay()
            return results

        return replay

    def _prepare_optimizer(self, device: torch.device) -> None:
        """Learning rates as tensors, and states that exist: a step of rate 0 makes those of a new optimizer."""
        for group in self.optimizer.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)
            group["capturable"] = True
        if self.optimizer.state:
            return
        rates = [group["lr"].clone() for group in self.optimizer.param_groups]
        torch._foreach_zero_([*self.gradients, *(group["lr"] for group in self.optimizer.param_groups)])
        self.optimizer.update()
        for state in self.optimizer.state.values():
            state["step"].zero_()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"].copy_(rate)


class GraphedTrainer(EmbeddingTrainer):
    """An EmbeddingTrainer whose steps are CUDA graphs, see `GraphedStep`.

    Raises:
        BadInput: several processes, accumulation, fp16, compilation, recomputed layers or another optimizer.
    """

    def __init__(self, model, args, *others, **more) -> None:
        alone = args.world_size == 1 and args.gradient_accumulation_steps == 1
        plain = not (args.fp16 or args.torch_compile or args.activation_checkpointing)
        if not (alone and plain and args.adamw == "torch" and args.optim.value.startswith("adamw_torch")):
            raise BadInput(
                "--cuda_graph: needs one process and torch's AdamW, and excludes --gradient_accumulation_steps, "
                "--fp16, --torch_compile and --activation_checkpointing; leave one of them out"
            )
        super().__init__(model, args, *others, **more)
        self._step: GraphedStep | None = None

    @staticmethod
    def chosen_optimizer(args) -> tuple[type, dict]:
        """The AdamW of the graph, with the run's values."""
        fused = args.device.type == "cuda"
        betas = (args.adam_beta1, args.adam_beta2)
        return CapturedAdamW, {"lr": args.learning_rate, "betas": betas, "eps": args.adam_epsilon, "fused": fused}

    def training_step(self, model, inputs, num_items_in_batch=None) -> Tensor:
        """The whole step; the Trainer's clipping and optimizer step, which follow, do nothing."""
        if self._step is None:  # not earlier: a checkpoint loads the optimizer
            optimizer = self.optimizer.optimizer
            self._step = GraphedStep(self.model, optimizer, self.accelerator.autocast, self.args.max_grad_norm)
        self.model.train()
        inputs = self._prepare_inputs(inputs)
        counted = {} if num_items_in_batch is None else {"num_items_in_batch": num_items_in_batch}
        output = self._step(inputs | counted)
        self.count_terms(output.terms, inputs)
        return output.loss.clone()

    def _clip_grad_norm(self, model) -> Tensor:
        return self._step.norm


def _tensors(inputs: dict) -> Iterator[tuple[object, Tensor, object]]:
    """Name, tensor and fixed facts of every part of a batch; layouts are tensors with facts."""
    for name, value in sorted(inputs.items()):
        if isinstance(value, Tensor):
            yield name, value, None
            continue
        for group, layout in value.items():
            facts = {key: fact for key, fact in vars(layout).items() if key != "numbers"}
            yield (name, group), layout.numbers, repr(sorted(facts.items()))


def _copied(inputs: dict) -> dict:
    copied = {}
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            copied[name] = value.clone()
            continue
        copied[name] = {group: copy.copy(layout) for group, layout in value.items()}
        for layout in copied[name].values():
            layout.numbers = layout.numbers.clone()
    return copied
