"""A model of the time on a 910B, made of work that the emulator counts. Nothing here ran on one."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.rnnt_loss_fused.time_model.shapes import Shape

# What the chip is taken to be. docs/npu_time_model.md says where that is from.
CORES = 40  # vector_core_cnt; some models have 48
CLOCK_HZ = 1.8e9  # cube_freq
VECTOR_BYTES_PER_CYCLE = 256  # vec_calc_size: 128 float16
CORE_BYTES_PER_CYCLE = 32  # ddr_rate: between one core and HBM
HBM_BYTES_PER_SECOND = 1.6e12
REPEAT_BYTES = 256  # of the emulator's unit of vector work
# Guesses: no public figure. The table gives the model for the lowest and the highest too.
INSTRUCTION_CYCLES = (8, 16, 32)  # start of a vector instruction whose result the next one needs
SCALAR_CYCLES = (4, 8, 16)  # a scalar read or write of UB
WAIT_CYCLES = (8, 16, 32)  # of the scalar unit for the vector unit, or the other way


@dataclass
class Work:
    """What one core does in one phase."""

    bytes: float = 0.0
    instructions: float = 0.0
    repeats: float = 0.0
    scalars: float = 0.0
    waits: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes + other.bytes,
            self.instructions + other.instructions,
            self.repeats + other.repeats,
            self.scalars + other.scalars,
            self.waits + other.waits,
        )

    def __mul__(self, factor: float) -> Work:
        return Work(
            self.bytes * factor,
            self.instructions * factor,
            self.repeats * factor,
            self.scalars * factor,
            self.waits * factor,
        )

    def seconds(self, guess: int) -> float:
        """Copies run beside vector and scalar instructions, which wait for each other."""
        computing = (
            self.repeats * REPEAT_BYTES / VECTOR_BYTES_PER_CYCLE
            + self.instructions * INSTRUCTION_CYCLES[guess]
            + self.scalars * SCALAR_CYCLES[guess]
            + self.waits * WAIT_CYCLES[guess]
        )
        return max(computing, self.bytes / CORE_BYTES_PER_CYCLE) / CLOCK_HZ


def makespan(seconds: list[float]) -> float:
    """Tasks go to the cores longest first, each to the least loaded."""
    loads = [0.0] * CORES
    for task in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += task
    return max(loads)


Lattices = dict[tuple[int, int], tuple[Work, Work]]


def milliseconds(row: Work, lattice_of: Lattices, shape: Shape, guess: int) -> dict:
    """The model: this plan, its parts, and one utterance on one core throughout."""
    hbm = row.bytes * shape.rows / HBM_BYTES_PER_SECOND
    rows = max(hbm, (row * (shape.rows / CORES)).seconds(guess))
    tasks = [work for length in shape.lengths for work in lattice_of[length]]
    lattices = makespan([work.seconds(guess) for work in tasks])
    utterances = []
    for length in shape.lengths:
        alpha, beta = lattice_of[length]
        utterances.append(row * (length[0] * (length[1] + 1)) + alpha + beta)
    alone = max(hbm, makespan([work.seconds(guess) for work in utterances]))
    return {
        "rows": rows * 1e3,
        "lattice": lattices * 1e3,
        "total": (rows + lattices) * 1e3,
        "alone": alone * 1e3,
        "limit": 3 * shape.logits_bytes / HBM_BYTES_PER_SECOND * 1e3,
    }
