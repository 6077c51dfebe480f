"""What the losses refuse of torch's function transforms, each in one sentence."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

# torch's public functions don't say what a tensor is wrapped in. A torch that hides this elsewhere
# raises errors of its own.
_functorch = getattr(torch._C, "_functorch", None)


def refuse_forward_mode(function: str, *inputs: Tensor | None) -> None:
    """Refuses inputs with a tangent, which the operators would drop silently.

    Raises:
        RuntimeError: an input has one.
    """
    for value in inputs:
        if value is not None and forward_ad.unpack_dual(value).tangent is not None:
            raise RuntimeError(
                f"`{function}` has no forward-mode derivative (torch.func.jvp and jacfwd, "
                "torch.autograd.forward_ad): only backward gives its gradient."
            )


def refuse_func_gradient(function: str, *inputs: Tensor | None) -> None:
    """Refuses torch.func.grad and the like, which torch's operators lack.

    Raises:
        RuntimeError: the call is inside one of them.
    """
    if _is_wrapped("is_gradtrackingtensor", inputs):
        raise RuntimeError(
            f"`{function}` has no torch.func derivative (grad, vjp, jacrev, hessian): only "
            "torch.autograd's backward gives its gradient."
        )


def refuse_vmap(function: str, *inputs: Tensor | None) -> None:
    """Refuses torch.vmap.

    Raises:
        RuntimeError: the call is inside torch.vmap.
    """
    if _is_wrapped("is_batchedtensor", inputs):
        raise vmap_error(function)


def _is_wrapped(test: str, inputs: Sequence[object]) -> bool:
    """Whether a test of functorch's holds for an input; not while torch.compile traces."""
    if torch.compiler.is_compiling() or _functorch is None:
        return False
    holds = getattr(_functorch, test)
    return any(isinstance(value, Tensor) and holds(value) for value in inputs)


def vmap_error(function: str) -> RuntimeError:
    """Returns the error for a call inside torch.vmap."""
    return RuntimeError(
        f"`{function}` can't run under torch.vmap: it takes a whole batch already, so call it once "
        "with all samples along the batch dimension."
    )


def refuse_script(function: Callable[..., Any], instead: str) -> None:
    """Makes torch.jit.script raise for a public function, and for one that calls it."""

    def refuse() -> NoReturn:
        raise RuntimeError(f"`{function.__name__}` can't be scripted: {instead}.")

    # torch asks every object for it before it compiles one.
    function.__prepare_scriptable__ = refuse  # type: ignore[attr-defined]
