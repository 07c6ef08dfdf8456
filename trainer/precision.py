"""The precision of matrix products: what --precision means on this machine.

Parameters, optimiser, softmax, energies and loss are float32 in any case.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from rareword.trainer.distributed import Group

Name = Literal["float32", "tf32", "bf16"]

_ROW = 8
"""Numbers in the 16 bytes to which rows of bf16 must be aligned for the fast kernels of GPUs."""


@dataclass(frozen=True)
class Precision:
    """How a model computes."""

    name: Name
    dtype: torch.dtype | None
    """Of weights and activations in products; None: that of the parameters."""
    align: int = 1
    """See `EncoderDecoder.network`."""


FLOAT32 = Precision("float32", None)


def resolve(name: Literal["auto", "float32", "tf32", "bf16"], group: Group) -> Precision:
    """The precision that a name means, the same in all processes; sets TF32 on or off.

    auto: bf16 on GPUs that have it (compute capability 8) and on CPUs with AVX-512 BF16 or AMX,
    else float32. tf32 on a CPU is float32.
    """
    if name == "auto":
        name = "bf16" if group.from_first(_is_bf16_fast(group.device)) else "float32"
    cuda = group.device.type == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
    return Precision(name, torch.bfloat16 if name == "bf16" else None, _ROW if cuda else 1)


def _is_bf16_fast(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capability = torch.cpu.get_capabilities()
    return bool(capability.get("avx512_bf16") or capability.get("amx_bf16"))
