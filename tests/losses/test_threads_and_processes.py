"""Threads, processes and versions of the kernel: the same answer whoever computes it."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from asr_ascend.losses import rnnt_loss_and_grad
from asr_ascend.losses.backends import cpu_library
from tests.support import oracles

THREAD_COUNTS = (1, 2, 3, 8)
CHILD_SECONDS = 240

# Large enough that sharing the work pays: some 1,100,000 logits.
SHAPES = {
    "one_long_utterance": ([(210, 40)], 131),
    "64_short_ones": ([(12 + b % 9, b % 11) for b in range(64)], 181),
    "ragged": ([(300, 20), (3, 1), (1, 0), (90, 30)], 121),
}


@pytest.fixture
def restore_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("restore_threads")
@oracles.each_dtype
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_the_number_of_threads_changes_no_bit(name: str, padded: bool, dtype: torch.dtype) -> None:
    lengths, vocab = SHAPES[name]
    case = oracles.make_case(lengths, vocab, dtype=dtype)
    logits = case.padded_logits() if padded else None
    upstream = torch.linspace(-1, 2, len(lengths))
    results = []
    for threads in THREAD_COUNTS:
        torch.set_num_threads(threads)
        results.append(oracles.run(case, "cpu", padded=logits, upstream=upstream, clamp=0.5))
    for costs, gradient in results[1:]:
        oracles.assert_same_bits(costs, results[0][0])
        oracles.assert_same_bits(gradient, results[0][1])


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reduced_values_have_the_same_bits_too(reduction: str) -> None:
    case = oracles.make_case(*SHAPES["64_short_ones"])
    values = []
    for threads in THREAD_COUNTS:
        torch.set_num_threads(threads)
        values.append(oracles.run(case, "cpu", reduction=reduction)[0])
    assert len({value.item() for value in values}) == 1


def test_calls_from_several_python_threads_at_once() -> None:
    cases = [
        oracles.make_case([(40 + 7 * i, 10 + i), (30, 5)], 30 + i, dtype=dtype, seed=i)
        for i, dtype in enumerate(oracles.ALL_DTYPES * 2)
    ]
    alone = [oracles.run(case, "cpu") for case in cases]
    with ThreadPoolExecutor(max_workers=4) as pool:
        for _ in range(5):
            together = list(pool.map(lambda case: oracles.run(case, "cpu"), cases))
            for (costs, gradient), (own_costs, own_gradient) in zip(together, alone, strict=True):
                oracles.assert_same_bits(costs, own_costs)
                oracles.assert_same_bits(gradient, own_gradient)


@functools.cache  # a forked child finds the parent's, a spawned one makes its own
def case_for_child() -> oracles.Case:
    return oracles.make_case(*SHAPES["one_long_utterance"])


def costs_and_gradient(case: oracles.Case) -> tuple[torch.Tensor, torch.Tensor]:
    return rnnt_loss_and_grad(
        case.logits, case.targets, case.logit_lengths, case.target_lengths, backend="cpu"
    )


def answer_in_child(connection: Connection, threads: int) -> None:
    """Runs in the child process and sends bytes.

    torch's own parallel loops hang in a forked child of a parent that has used them, so nothing
    here but the loss may touch a large tensor: no autograd, no filling of fresh memory.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_num_threads(threads)
    for answer in costs_and_gradient(case_for_child()):
        connection.send_bytes(answer.numpy().tobytes())
    connection.close()


def ask_child(context: multiprocessing.context.BaseContext, threads: int) -> list[bytes]:
    """Costs and gradient that a child process computes, as bytes."""
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=answer_in_child, args=(sender, threads))
    child.start()
    sender.close()
    try:
        answers = []
        for _ in range(2):
            assert receiver.poll(CHILD_SECONDS), f"the child gave no answer in {CHILD_SECONDS} s"
            answers.append(receiver.recv_bytes())
        child.join(CHILD_SECONDS)
        assert child.exitcode == 0
        return answers
    finally:
        if child.is_alive():
            child.kill()
            child.join()


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(("method", "threads"), [("fork", (2, 3, 1)), ("spawn", (2,))])
def test_a_child_process_after_use_in_the_parent(method: str, threads: tuple[int, ...]) -> None:
    """A thread pool that doesn't survive a fork would hang here."""
    torch.set_num_threads(2)
    costs, gradient = costs_and_gradient(case_for_child())
    expected = [costs.numpy().tobytes(), gradient.numpy().tobytes()]
    context = multiprocessing.get_context(method)
    for count in threads:
        assert ask_child(context, count) == expected
    # The parent goes on working.
    again, _ = costs_and_gradient(case_for_child())
    oracles.assert_same_bits(again, costs)


# Versions of the kernel, each in a process of its own: the choice is made once.


def listed_versions() -> list[str]:
    return cpu_library.library().asr_ascend_isas().decode().split(",")


def cases_for_versions() -> list[oracles.Case]:
    cases = [
        oracles.make_case([(5, 3), (2, 2)], vocab, blank=vocab // 2, dtype=dtype, seed=vocab)
        for dtype in oracles.ALL_DTYPES
        for vocab in (2, 7, 16, 17, 33, 70, 257)
    ]
    cases += [
        oracles.make_case([(60, 20), (9, 14)], 37, dtype=dtype, scale=scale)
        for dtype in oracles.ALL_DTYPES
        for scale in (4.0, 1000.0)
    ]
    poisoned = oracles.make_case([(3, 2), (3, 2)], 19)
    for lane in range(19):
        logits = poisoned.logits.clone()
        logits[lane % 9, lane] = float("nan") if lane % 2 else float("inf")
        cases.append(poisoned.with_logits(logits))
    return cases


ANSWER_SCRIPT = """
import sys
import torch
from tests.support import oracles
from tests.losses import test_threads_and_processes as here
from asr_ascend.losses.backends import cpu_library

isa = cpu_library.library().asr_ascend_isa().decode()
answers = [oracles.run(case, "cpu", clamp=0.9) for case in here.cases_for_versions()]
torch.save({"isa": isa, "answers": answers}, sys.argv[1])
"""


def run_version(name: str, output: Path) -> subprocess.CompletedProcess:
    paths = [path or str(Path.cwd()) for path in sys.path]
    environment = {**os.environ, "ASR_ASCEND_ISA": name, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-c", ANSWER_SCRIPT, str(output)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS * 2,
        check=False,
    )


def test_every_version_of_the_kernel_is_within_tolerance(tmp_path: Path) -> None:
    versions = listed_versions()
    assert "plain" in versions
    cases = cases_for_versions()
    exact = [oracles.exact(case, clamp=0.9) for case in cases]
    for name in versions:
        output = tmp_path / f"{name}.pt"
        process = run_version(name, output)
        assert process.returncode == 0, process.stderr
        result = torch.load(output)
        assert result["isa"] == name
        assert len(result["answers"]) == len(cases)
        for case, answer, expected in zip(cases, result["answers"], exact, strict=True):
            dtype = case.logits.dtype
            oracles.assert_costs(answer[0], expected[0], dtype)
            oracles.assert_gradient(answer[1], expected[1], dtype)


def test_an_unknown_version_is_refused_by_name(tmp_path: Path) -> None:
    process = run_version("vax", tmp_path / "vax.pt")
    assert process.returncode != 0
    assert not (tmp_path / "vax.pt").exists()
    assert process.stderr.strip().splitlines()[-1] == (
        f"RuntimeError: `ASR_ASCEND_ISA` must be one of {', '.join(listed_versions())} here, "
        "but is vax."
    )
