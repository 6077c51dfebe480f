"""Calls the aclnn functions of the stand-in's libcust_opapi directly, past torch_npu."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SUCCESS, NULL_POINTER, INVALID, TILING, FAULT = 0, 161001, 161002, 561002, 507015
FLOAT, FLOAT16, INT32, INT64, BF16, ND, NCHW = 0, 1, 3, 9, 27, 2, 0
TYPES = {
    torch.float32: FLOAT,
    torch.float16: FLOAT16,
    torch.bfloat16: BF16,
    torch.int32: INT32,
    torch.int64: INT64,
}

_acl = ctypes.CDLL(str(Path(os.environ["LD_LIBRARY_PATH"].split(":")[0]) / "libascendcl.so"))
_opapi = ctypes.CDLL(
    str(Path(os.environ["ASCEND_CUSTOM_OPP_PATH"]) / "op_api" / "lib" / "libcust_opapi.so")
)
_acl.aclCreateTensor.restype = ctypes.c_void_p
_acl.aclGetRecentErrMsg.restype = ctypes.c_char_p


def message() -> str:
    """What the latest call that failed on this thread said."""
    return _acl.aclGetRecentErrMsg().decode()


def synchronize() -> int:
    """aclrtSynchronizeDevice, past torch_npu, which ends the process for a fault."""
    return _acl.aclrtSynchronizeDevice()


def tensor(value: Tensor, acl_format: int = ND) -> ctypes.c_void_p:
    """aclCreateTensor of an NPU tensor; never destroyed, as tests are short."""
    sizes = (ctypes.c_int64 * value.dim())(*value.shape)
    strides = (ctypes.c_int64 * value.dim())(*value.stride())
    return ctypes.c_void_p(
        _acl.aclCreateTensor(
            sizes,
            ctypes.c_uint64(value.dim()),
            TYPES[value.dtype],
            strides,
            ctypes.c_int64(0),
            acl_format,
            sizes,
            ctypes.c_uint64(value.dim()),
            ctypes.c_void_p(value.data_ptr()),
        )
    )


class Call:
    """Both phases of one function; arguments in the documented order, sizes and executor apart."""

    def __init__(self, name: str, arguments: Sequence[Any]) -> None:
        self.name = name
        self.arguments = [self._argument(value) for value in arguments]
        self.workspace_bytes = ctypes.c_uint64(0)
        self.executor = ctypes.c_void_p(None)

    @staticmethod
    def _argument(value: Any) -> Any:
        if isinstance(value, Tensor):
            return tensor(value)
        if isinstance(value, bool):
            return ctypes.c_bool(value)
        if isinstance(value, int):
            return ctypes.c_int64(value)
        if isinstance(value, float):
            return ctypes.c_double(value)
        return ctypes.c_void_p(None) if value is None else value

    def prepare(self, *, sizes: bool = True, executor: bool = True) -> int:
        return getattr(_opapi, f"{self.name}GetWorkspaceSize")(
            *self.arguments,
            ctypes.byref(self.workspace_bytes) if sizes else None,
            ctypes.byref(self.executor) if executor else None,
        )

    def launch(self, workspace: Tensor | None, workspace_bytes: int | None = None) -> int:
        size = self.workspace_bytes.value if workspace_bytes is None else workspace_bytes
        pointer = None if workspace is None else workspace.data_ptr()
        return getattr(_opapi, self.name)(
            ctypes.c_void_p(pointer), ctypes.c_uint64(size), self.executor, None
        )
