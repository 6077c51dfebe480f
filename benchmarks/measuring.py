"""Times and memory of implementations on a case: interleaved, warmed up, numbers checked."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks import checks, floor, machine
from benchmarks.cases import Case
from benchmarks.implementations import OURS, Implementation

# What a library may raise where it can't do a case, and what is raised for wrong numbers.
FAILURES = (
    checks.WrongNumbersError,
    RuntimeError,
    ValueError,
    TypeError,
    AssertionError,
    MemoryError,
)
LEAST_FLOORS = 3
SETTLING_SECONDS = 0.02  # for OpenMP's threads to stop spinning
SHORT_SECONDS = 5e-3
SHORT_CALLS = 3


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    Args:
        threads: numbers of threads; ratios are at the last.
        repetitions: at most, of each implementation with each number of threads.
        seconds: that the repetitions of one may take; one whose first call takes longer is timed
            in that call alone.
        slowest: seconds of a call above which an implementation is left out.
    """

    threads: tuple[int, ...]
    repetitions: int = 15
    seconds: float = 3.0
    slowest: float = 45.0


@dataclass
class Job:
    """An implementation with a number of threads, and what was measured of it."""

    implementation: Implementation
    threads: int
    call: Callable[[Tensor], object]
    warmed_up: bool = True
    milliseconds: list[float] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    peak_extra_bytes: int | None = None

    def wants_more(self, settings: Settings) -> bool:
        done = len(self.milliseconds)
        if not self.warmed_up or done >= settings.repetitions:
            return False
        return done < 2 or sum(self.milliseconds) < 1e3 * settings.seconds


class Arena:
    """One piece of memory for the logits of all, whatever their dtype and layout."""

    def __init__(self, num_bytes: int) -> None:
        self._bytes = torch.empty(num_bytes, dtype=torch.uint8)

    def logits(self, case: Case, layout: str, dtype: torch.dtype) -> Tensor:
        """The case's logits, written anew."""
        size = case.logits_bytes(layout, dtype)
        logits = self._bytes[:size].view(dtype).view(case.shape(layout))
        case.fill(logits)
        return logits


def measure_case(
    case: Case, implementations: list[Implementation], settings: Settings
) -> dict[str, object]:
    """Everything about a case, as the JSON file has it."""
    checks.forget()
    results: list[dict] = []
    jobs: list[Job] = []
    chosen = []
    for implementation in implementations:
        reason = reason_to_skip(implementation, case, settings)
        if reason is None:
            chosen.append(implementation)
        else:
            results.append({"implementation": implementation.name, **reason})
    sizes = [case.logits_bytes(one.layout, one.dtype) for one in chosen]
    if sizes:
        # The floor reads and writes packed float32.
        arena = Arena(max(*sizes, case.logits_bytes("packed", torch.float32)))
        for implementation in chosen:
            try:
                jobs += list(first_calls(implementation, case, arena, settings))
            except FAILURES as error:
                results.append({"implementation": implementation.name, **reason_of(error)})
        floors, no_floor = time_all(jobs, case, arena, settings)
    else:
        floors, no_floor = {}, "nothing fits"
    results += summaries(jobs, case, floors)
    return {
        "name": case.name,
        "shape": str(case),
        "rows": case.rows,
        "vocab": case.vocab,
        "logits_bytes": case.logits_bytes("packed", torch.float32),
        "floor": {str(threads): spread(times) for threads, times in floors.items()},
        "no_floor": no_floor,
        "results": results,
    }


def reason_to_skip(
    implementation: Implementation, case: Case, settings: Settings
) -> dict[str, str] | None:
    """Why an implementation isn't measured on a case, or None.

    Its numbers and its speed are looked at on a smaller case first.
    """
    size = case.logits_bytes(implementation.layout, implementation.dtype)
    # The check needs a sample in float64 and float32.
    needed = (1 + implementation.extra) * size + 16 * max(case.sample_rows) * case.vocab
    free = machine.available_bytes()
    if needed > 0.95 * free:
        return {"skipped": f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"}
    if case.is_small:
        return None
    small = case.smaller()
    torch.set_num_threads(settings.threads[-1])
    try:
        call = implementation.prepare(small.indices())
        arena = Arena(small.logits_bytes(implementation.layout, implementation.dtype))
        logits = arena.logits(small, implementation.layout, implementation.dtype)
        value, gradient = call(logits)
        checks.check(implementation, small, value, gradient, whole=True)
        logits = arena.logits(small, implementation.layout, implementation.dtype)
        start = time.perf_counter()
        call(logits)
        seconds = time.perf_counter() - start
    except FAILURES as error:
        return reason_of(error)
    whole = seconds * math.prod(case.shape(implementation.layout)) / (small.rows * small.vocab)
    if whole > settings.slowest:
        return {"skipped": f"a call would take about {whole:.0f} s; --slow runs it"}
    return None


def reason_of(error: Exception) -> dict[str, str]:
    """Why there is no time, as the JSON file has it."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return {"refused" if isinstance(error, checks.WrongNumbersError) else "failed": text}


def first_calls(
    implementation: Implementation, case: Case, arena: Arena, settings: Settings
) -> Iterator[Job]:
    """A job for each number of threads, its numbers checked and its memory measured."""
    call = implementation.prepare(case.indices())
    for threads in settings.threads:
        torch.set_num_threads(threads)
        job = Job(implementation, threads, call)
        logits = arena.logits(case, implementation.layout, implementation.dtype)
        time.sleep(SETTLING_SECONDS)
        start = time.perf_counter()
        output, job.peak_extra_bytes = machine.with_peak_extra_bytes(call, logits)
        seconds = time.perf_counter() - start
        job.numbers = checks.check(implementation, case, *output, whole=case.is_small)
        del output
        if seconds > settings.seconds:
            job.warmed_up = False
            job.milliseconds = [1e3 * seconds]
        yield job


def time_all(
    jobs: list[Job], case: Case, arena: Arena, settings: Settings
) -> tuple[dict[int, list[float]], str | None]:
    """Fills in the jobs' times, round by round; returns the floor's, or why there is none."""
    no_floor = None
    try:
        floor.library()
        floors: dict[int, list[float]] = {threads: [] for threads in settings.threads}
    except RuntimeError as error:
        floors, no_floor = {}, str(error)
    for r in range(settings.repetitions):
        waiting = [job for job in jobs if job.wants_more(settings)]
        if not waiting and r >= LEAST_FLOORS:
            break
        with no_collection():
            for threads, times in floors.items():
                make = functools.partial(arena.logits, case, "packed", torch.float32)
                times.append(timed(floor.run, make, threads))
            # Who comes after whom changes from round to round.
            start = r % max(1, len(waiting))
            for job in (*waiting[start:], *waiting[:start]):
                one = job.implementation
                make = functools.partial(arena.logits, case, one.layout, one.dtype)
                job.milliseconds.append(timed(job.call, make, job.threads))
    return floors, no_floor


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Python's garbage is collected now, and then not within somebody's time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(
    call: Callable[[Tensor], object], make_logits: Callable[[], Tensor], threads: int
) -> float:
    """Milliseconds of a call, without the making of its logits and the freeing of its result.

    A short call is made three times, and the last one counts: the first finds cold caches.
    """
    time.sleep(SETTLING_SECONDS)
    for _ in range(SHORT_CALLS):
        torch.set_num_threads(1)  # so that no thread is left spinning by this
        logits = make_logits()
        torch.set_num_threads(threads)
        start = time.perf_counter()
        result = call(logits)
        seconds = time.perf_counter() - start
        del result
        if seconds > SHORT_SECONDS:
            break
    return 1e3 * seconds


def spread(times: list[float]) -> dict[str, object]:
    """Median, quartiles and extremes of milliseconds."""
    ordered = sorted(times)
    quartiles = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else [ordered[0]] * 3
    return {
        "median": statistics.median(ordered),
        # Of few values the quartiles can lie outside; never report what was not seen.
        "quartiles": [max(quartiles[0], ordered[0]), min(quartiles[2], ordered[-1])],
        "extremes": [ordered[0], ordered[-1]],
        "repetitions": len(ordered),
    }


def summaries(jobs: list[Job], case: Case, floors: dict[int, list[float]]) -> Iterator[dict]:
    """One entry of the JSON file for each job."""
    medians = {
        (job.implementation.name, job.threads): statistics.median(job.milliseconds) for job in jobs
    }
    fewest = min((job.threads for job in jobs), default=1)
    for job in jobs:
        one = job.implementation
        median = medians[one.name, job.threads]
        own = medians.get((OURS, job.threads))
        # Where a second thread's start costs more than it saves, one thread is the floor.
        floor_medians = [statistics.median(t) for n, t in floors.items() if n <= job.threads]
        size = case.logits_bytes(one.layout, one.dtype)
        extra = job.peak_extra_bytes
        yield {
            "implementation": one.name,
            "title": one.title,
            "threads": job.threads,
            "milliseconds": spread(job.milliseconds),
            "warmed_up": job.warmed_up,
            "ratio_to_ours": median / own if own else None,
            "ratio_to_floor": median / min(floor_medians) if floor_medians else None,
            "speed_up": medians[one.name, fewest] / median,
            "peak_extra_bytes": extra,
            "peak_extra_per_logits": None if extra is None else extra / size,
            "numbers": job.numbers,
        }
