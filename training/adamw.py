"""AdamW of transformers 4, which the official scripts of this family use."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from training.run_arguments import RunArguments


class TransformersAdamW(Optimizer):
    """AdamW with another place of epsilon, and weight decay after the step.

        m = b1 m + (1 - b1) g
        v = b2 v + (1 - b2) g^2
        c = sqrt(1 - b2^t) / (1 - b1^t), or 1 without `correct_bias`
        theta = theta - lr c m / (sqrt(v) + epsilon)
        theta = theta - lr decay theta

    torch adds epsilon to sqrt(v / (1 - b2^t)). Here epsilon has 1 / sqrt(1 - b2^t) times the effect
    (32 times at the first step), which slows down weights whose gradient is about as small as
    epsilon.

    Source: `transformers.AdamW` of release 4.2.1; without `correct_bias` as in ConSERT's and
    IS-BERT's code.
    """

    def __init__(
        self,
        params,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
    ) -> None:
        values = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, values | {"correct_bias": correct_bias})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict) -> None:
        state, gradient, (first, second) = self.state[parameter], parameter.grad, group["betas"]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        size = group["lr"]
        if group["correct_bias"]:
            size *= (1 - second ** state["step"]) ** 0.5 / (1 - first ** state["step"])
        root = state["exp_avg_sq"].sqrt().add_(group["eps"])
        parameter.addcdiv_(state["exp_avg"], root, value=-size)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])


def chosen_optimizer(args: RunArguments) -> tuple[type[Optimizer], dict] | None:
    """Class and arguments of the optimizer chosen by `--adamw`; None if `--optim` decides."""
    if args.adamw == "torch":
        return None
    values = {
        "lr": args.learning_rate,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
        "correct_bias": args.adamw == "transformers",
    }
    return TransformersAdamW, values
