"""The device code is clean, and each rule of the lint notices a fault planted on purpose."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
SCRIPT = KERNELS / "device_lint" / "lint_device_code.py"
FOLDERS = ("rnnt_loss_fused/op_kernel", "rnnt_lattice")

needs_clang = pytest.mark.skipif(shutil.which("clang++") is None, reason="there is no clang++")

HEADER = """#pragma once
#include "kernel_operator.h"
namespace small {
__aicore__ inline int32_t Twice(int32_t value) { return 2 * value; }
struct Sums {
  __aicore__ inline Sums() {}
  __aicore__ inline float Of(const AscendC::GlobalTensor<float>& x) { return x.GetValue(0); }
  int32_t count = 0;
};
PLANTED
}  // namespace small
"""
KERNEL = """#include "small.h"
extern "C" __global__ __aicore__ void small_kernel(GM_ADDR x, GM_ADDR tiling) {
  AscendC::GlobalTensor<float> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 8);
  small::Sums sums;
  sums.count = small::Twice(4);
  tensor.SetValue(0, sums.Of(tensor));
}
"""


def run(kernels: Path, *options: str) -> tuple[int, list[str], str]:
    command = [sys.executable, str(SCRIPT), "--kernels", str(kernels), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.replace(f"{kernels}/", "") for line in result.stdout.splitlines()]
    return result.returncode, lines, result.stderr


def small_kernels(folder: Path, planted: str) -> Path:
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    (folder / FOLDERS[0] / "small.h").write_text(HEADER.replace("PLANTED", planted))
    (folder / FOLDERS[0] / "small.cpp").write_text(KERNEL)
    return folder


@needs_clang
def test_device_code_is_clean() -> None:
    assert run(KERNELS) == (0, [], "")


@needs_clang
def test_a_small_kernel_is_clean(tmp_path: Path) -> None:
    assert run(small_kernels(tmp_path, "")) == (0, [], "")


# What stands in line 10 of small.h, and what the lint says of it.
FAULTS = {
    "std_header": (
        "#include <vector>",
        ["std: `vector` is not there on a device"],
    ),
    "std_name": (
        "__aicore__ inline int F(int a) { return std::min(a, 2); }",
        ["std: use of undeclared identifier 'std'"],
    ),
    "own_std": (
        "namespace std { constexpr int kA = 0; }",
        ["std: there is no namespace std on a device"],
    ),
    "c_library": (
        "__aicore__ inline float F(float a) { return __builtin_expf(a); }",
        ["std: `F` calls `expf`, which a device doesn't have"],
    ),
    "double": (
        "__aicore__ inline void F(double) {}",
        ["double: there is no double precision on a device"],
    ),
    "double_by_promotion": (
        "__aicore__ inline float F(float a) { return static_cast<float>(a * 0.5); }",
        ["double: there is no double precision on a device"],
    ),
    "double_in_an_unused_template": (
        "template <typename T> __aicore__ inline T F(T a) { long double b = 1; return a; }",
        ["double: there is no double precision on a device"],
    ),
    "virtual": (
        "struct A { __aicore__ virtual void F() {} };",
        ["virtual: `F` must not be virtual"],
    ),
    "virtual_base": (
        "struct A {}; struct B : virtual A {};",
        ["virtual: `B` must not be virtual"],
    ),
    "recursion": (
        "__aicore__ inline int F(int n) { return n < 2 ? n : F(n - 1); }",
        ["recursion: F -> F"],
    ),
    "recursion_of_two": (
        "struct A { __aicore__ inline int G(int n) { return n > 0 ? F(n) : 0; } "
        "__aicore__ inline int F(int n) { return G(n - 1); } };",
        ["recursion: F -> G -> F"],
    ),
    "recursion_of_a_template": (
        "template <typename T> __aicore__ inline T F(T n) { return n > 0 ? F(n - 1) : n; } "
        "__aicore__ inline int G() { return F(3); }",
        ["recursion: F<int> -> F<int>"],
    ),
    "recursion_by_a_constructor": (
        "struct A { __aicore__ inline A(int n) { if (n > 0) A(n - 1); } };",
        ["recursion: A -> A"],
    ),
    "function_pointer": (
        "__aicore__ inline int F(int (*f)(int)) { return f(1); }",
        ["function pointer: `F` calls through a pointer"],
    ),
    "throw": (
        "__aicore__ inline void F() { throw 1; }",
        ["exceptions: `throw` is not there on a device"],
    ),
    "try": (
        "__aicore__ inline void F() { try { Twice(1); } catch (...) {} }",
        [
            "exceptions: `catch` is not there on a device",
            "exceptions: `try` is not there on a device",
        ],
    ),
    "new": (
        "__aicore__ inline int* F() { return new int; }",
        ["allocation: `new` is not there on a device"],
    ),
    "delete": (
        "__aicore__ inline void F(int* a) { delete a; }",
        ["allocation: `delete` is not there on a device"],
    ),
    "malloc": (
        'extern "C" void* malloc(unsigned long); __aicore__ inline void* F() { return malloc(4); }',
        [
            "allocation: `malloc` is not there on a device",
            "std: `F` calls `malloc`, which a device doesn't have",
        ],
    ),
    "stack_of_run_time_size": (
        "__aicore__ inline void F(int n) { int a[n]; }",
        ["allocation: the size of an array must be constant"],
    ),
    "global_variable": (
        "int32_t g_count = 0;",
        ["state: `g_count` must be constant: cores have no variables that outlive a call"],
    ),
    "global_pointer_to_constants": (
        "const int32_t* g_table = nullptr;",
        ["state: `g_table` must be constant: cores have no variables that outlive a call"],
    ),
    "static_local": (
        "__aicore__ inline int F() { static int calls = 0; return ++calls; }",
        ["state: `calls` must be constant: cores have no variables that outlive a call"],
    ),
    "static_member": (
        "struct A { static int32_t count; };",
        ["state: `count` must be constant: cores have no variables that outlive a call"],
    ),
    "thread_local": (
        "thread_local const int32_t kA = 3;",
        ["state: `kA` must not be thread_local"],
    ),
    "typeid": (
        "__aicore__ inline void F() { typeid(Sums); }",
        ["rtti: `typeid` is not there on a device"],
    ),
    "dynamic_cast": (
        "struct A { __aicore__ virtual ~A() {} }; "
        "__aicore__ inline bool F(A* a) { return dynamic_cast<void*>(a) != nullptr; }",
        ["rtti: `dynamic_cast` is not there on a device", "virtual: `~A` must not be virtual"],
    ),
    "lambda": (
        "__aicore__ inline int F() { return [](int a) { return a; }(1); }",
        ["lambda: a lambda is not there on a device"],
    ),
    "no_qualifier": (
        "inline int F() { return 1; }",
        ["qualifier: `F` must be __aicore__"],
    ),
    "no_qualifier_of_a_method": (
        "struct A { inline int F() { return 1; } };",
        ["qualifier: `F` must be __aicore__"],
    ),
    "gm_to_core": (
        "__aicore__ inline int* F(__gm__ int* a) { return a; }",
        [
            "address spaces: cannot initialize return object of type 'int *' with an lvalue of "
            "type '__gm__ int *'"
        ],
    ),
    "gm_to_ub": (
        "__aicore__ inline __ubuf__ int* F(__gm__ int* a) { "
        "return reinterpret_cast<__ubuf__ int*>(a); }",
        ["address spaces: reinterpret_cast from '__gm__ int *' to '__ubuf__ int *' is not allowed"],
    ),
    "gm_to_ub_by_force": (
        "__aicore__ inline __ubuf__ int* F(__gm__ int* a) { return (__ubuf__ int*)a; }",
        ["address spaces: a cast must not change what memory a pointer points to"],
    ),
    "gm_by_number": (
        "__aicore__ inline __ubuf__ int* F(__gm__ int* a) { "
        "return reinterpret_cast<__ubuf__ int*>(reinterpret_cast<uint64_t>(a)); }",
        ["address spaces: an address must not be made of a number"],
    ),
    "gm_past_the_tensors": (
        "__aicore__ inline int F(__gm__ int* a) { return *a + a[1]; }",
        ["address spaces: memory outside the core must be reached through a tensor"],
    ),
    "gm_member": (
        "__aicore__ inline int F(__gm__ Sums* a) { return a->count; }",
        ["address spaces: memory outside the core must be reached through a tensor"],
    ),
}


@needs_clang
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    planted, expected = FAULTS[name]
    code, lines, errors = run(small_kernels(tmp_path, planted))
    assert errors == ""
    assert sorted(set(lines)) == [
        f"rnnt_loss_fused/op_kernel/small.h:10: {line}." for line in expected
    ]
    assert code == 1


@needs_clang
def test_constants_that_need_code_to_start(tmp_path: Path) -> None:
    planted = "const int32_t kA = Twice(2);"
    code, lines, _ = run(small_kernels(tmp_path, planted))
    assert [line.partition(": ")[2] for line in lines] == [
        "state: a constant is computed before the kernel starts."
    ]
    assert code == 1


# A piece of the real kernels, what becomes of it, and the rule that notices.
REAL_FAULTS = {
    "a constant loses its f": ("op_kernel/rnnt_loss_vector.h", "-1e29f", "-1e29", "double"),
    "a method of the shared code loses its qualifier": (
        "../rnnt_lattice/schedule.h",
        "ASR_ASCEND_CORE_METHOD void Pop()",
        "void Pop()",
        "qualifier",
    ),
    "a heap that sifts by calling itself": (
        "../rnnt_lattice/schedule.h",
        "storage_.Set(place, value);\n  }",
        "storage_.Set(place, value);\n    if (value < 0) SiftDown(place, 0);\n  }",
        "recursion",
    ),
    "a global function of AscendC is looked for in its namespace": (
        "op_kernel/rnnt_loss_vector.h",
        "GetTPipePtr()",
        "AscendC::GetTPipePtr()",
        "compile",
    ),
    "a second default of the tiling": (
        "op_kernel/rnnt_loss_fused.cpp",
        "  REGISTER_TILING_DEFAULT(RnntLossFusedTilingData);\n",
        "  REGISTER_TILING_DEFAULT(RnntLossFusedTilingData);\n" * 2,
        "tiling",
    ),
    "no default of the tiling": (
        "op_kernel/rnnt_loss_forward.cpp",
        "  REGISTER_TILING_DEFAULT(RnntLossFusedTilingData);\n",
        "",
        "tiling",
    ),
    "a tiling key that is computed": (
        "op_kernel/rnnt_loss_backward.cpp",
        "TILING_KEY_IS(RNNT_LOSS_BACKWARD_FLOAT16)",
        "TILING_KEY_IS(RNNT_LOSS_BACKWARD_FLOAT32 + 1)",
        "tiling",
    ),
    "a tiling key that only the compiler knows": (
        "op_kernel/rnnt_loss_fused.cpp",
        "TILING_KEY_IS(RNNT_LOSS_FUSED_FLOAT16)",
        "TILING_KEY_IS(kFloat16)",
        "tiling",
    ),
    "an address that forgets its memory": (
        "op_kernel/rnnt_loss_problem.h",
        "reinterpret_cast<__gm__ float*>",
        "reinterpret_cast<float*>",
        "address spaces",
    ),
}


@needs_clang
@pytest.mark.parametrize("name", REAL_FAULTS)
def test_a_fault_in_the_real_kernels_is_found(name: str, tmp_path: Path) -> None:
    file, old, new, rule = REAL_FAULTS[name]
    for folder in FOLDERS:
        shutil.copytree(KERNELS / folder, tmp_path / folder)
    path = (tmp_path / "rnnt_loss_fused" / file).resolve()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    code, lines, _ = run(tmp_path)
    assert code == 1
    rules = {re.match(r"([\w./]+):\d+: (.+?): ", line).groups() for line in lines}
    assert (str(path.relative_to(tmp_path)), rule) in rules


def test_without_clang_it_says_so(tmp_path: Path) -> None:
    code, lines, errors = run(small_kernels(tmp_path, "int g = 0;"), "--clang", "no-such-clang")
    assert (code, lines) == (0, [])
    assert errors == (
        "There is no no-such-clang: the device code was not looked at (apt-get install clang).\n"
    )
