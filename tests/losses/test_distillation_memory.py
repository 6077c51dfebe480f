"""Peak memory of the distillation: one tensor of logits, and blocks of rows."""

from tests.support.peak_memory import needs_linux, peak_bytes

pytestmark = needs_linux

TEACHER_AND_STUDENT = """
from asr_ascend.losses.distillation import collapse_blocks, distilled_rnnt_loss

def problem(B, T, U, V, H):
    lengths = torch.full((B,), T), torch.full((B,), U)
    sizes = torch.randint(1, V, (B, U)), *lengths
    return torch.randn(B * T * (U + 1), H), torch.randn(V, H, requires_grad=True), sizes

def leaves(hidden, weight, sizes):
    return [weight]

def run(hidden, weight, sizes, options):
    blocks = (part @ weight.detach().T for part in hidden.split(200))
    teacher = collapse_blocks(blocks, *sizes, 0)
    rnnt, distance = distilled_rnnt_loss(
        hidden @ weight.T, teacher, *sizes, 0, block_bytes=2**22, **options
    )
    (rnnt + 0.1 * distance).backward()
"""
B, T, U, V, H = 3, 120, 24, 5000, 32
LOGITS = B * T * (U + 1) * V * 4  # 180 MB


def peak_of(**options) -> int:
    return peak_bytes(TEACHER_AND_STUDENT, (B, T, U, V, H), options)


def test_teacher_student_and_gradient_take_one_tensor_of_logits():
    assert 0.95 * LOGITS < peak_of(reuse_logits=True) < 1.15 * LOGITS


def test_without_reuse_the_gradient_is_the_second():
    assert 1.95 * LOGITS < peak_of(reuse_logits=False) < 2.15 * LOGITS
