"""Training from a teacher: what the step hands to the loss, what the run keeps, what is refused."""

import csv
import shutil

import pytest
import torch

import asr_ascend.training.objective
from asr_ascend.checkpoints.checkpoint import load_model, read_checkpoint
from asr_ascend.config.composing import compose_config
from asr_ascend.config.rules import ConfigError
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.losses.distillation import collapsed_log_probs, distillation_loss
from asr_ascend.models import build_transducer
from asr_ascend.training.teacher import Teacher, load_teacher
from tests.support.tiny_runs import BLANK_LAST, TINY, run
from tests.training.test_training_step import (
    assert_same_gradients,
    empty_batch,
    make_batch,
    one_step,
)

PACKED = "loss.joiner=packed"


@pytest.fixture
def tokenizer():
    return Tokenizer.train(["甲乙丙丁戊"], blank=0)


def make_teacher(tokenizer, block_bytes: int = 2**20) -> Teacher:
    """Of another seed and size than the student."""
    config = compose_config("train", [*TINY, "model.encoder_dim=32"]).model
    torch.manual_seed(5)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, config)
    with torch.no_grad():
        model.joiner.output.weight.mul_(5)
    return Teacher(model, block_bytes)


@pytest.mark.parametrize("overrides", [(), ("loss.reduction=mean",), ("loss.normalize_by=tokens",)])
def test_a_weight_of_zero_trains_as_without_a_teacher(tokenizer, overrides):
    batches = [make_batch([0, 1, 2]), make_batch([3])]
    options = (*overrides, PACKED, "distillation.weight=0", "loss.fastemit_lambda=0.05")
    plain = one_step(tokenizer, batches, *options)
    taught = one_step(tokenizer, batches, *options, teacher=make_teacher(tokenizer))
    assert plain.last_step_metrics["distillation_loss"] == ""
    assert taught.last_step_metrics["distillation_loss"] > 1
    for key in ("loss", "rnnt_loss", "ctc_loss"):
        expected = pytest.approx(plain.last_step_metrics[key], rel=1e-5)
        assert taught.last_step_metrics[key] == expected
    assert_same_gradients(taught, plain)


def test_the_gradient_is_that_of_the_weighted_sum(tokenizer):
    """Linear in the weight; and without RNN-T and CTC, the divergence's own."""
    teacher, batch = make_teacher(tokenizer), make_batch([0, 1, 2, 3])
    steps = [
        one_step(tokenizer, [batch], PACKED, f"distillation.weight={weight}", teacher=teacher)
        for weight in (0.0, 0.5, 1.5)
    ]
    student = build_student(tokenizer)
    enc, lengths = student.encode(batch.features, batch.feature_lengths, 8, 4)
    sizes = batch.targets, lengths, batch.target_lengths
    logits = student.join_packed(enc, lengths, batch.targets, batch.target_lengths)
    taught = teacher.log_probs(batch)
    collapsed = collapsed_log_probs(logits, *sizes, tokenizer.blank)
    distance = distillation_loss(collapsed, taught, lengths, batch.target_lengths, "sum") / 4
    distance.backward()
    for step in steps:
        assert step.last_step_metrics["distillation_loss"] == pytest.approx(distance.item(), 1e-5)
    losses = [step.last_step_metrics["loss"] for step in steps]
    assert losses[1] - losses[0] == pytest.approx(0.5 * distance.item(), rel=1e-4)
    largest = max(float(p.grad.abs().max()) for p in student.parameters() if p.grad is not None)
    for name, parameter in student.named_parameters():
        if parameter.grad is None:
            continue
        first, half, more = (step.gradients[f"model.{name}"] for step in steps)
        for weight, gradient in ((0.5, half), (1.5, more)):
            torch.testing.assert_close(
                gradient - first, weight * parameter.grad, rtol=1e-3, atol=1e-5 * largest, msg=name
            )


def build_student(tokenizer):
    """The model that `one_step` starts with."""
    config = compose_config("train", list(TINY)).model
    torch.manual_seed(0)
    return build_transducer(tokenizer.vocab_size, tokenizer.blank, config).train()


def test_the_teacher_hears_everything_and_learns_nothing(tokenizer):
    teacher, batch = make_teacher(tokenizer, block_bytes=1), make_batch([0, 1, 2, 3])
    before = {k: v.clone() for k, v in teacher.model.state_dict().items()}
    module = one_step(tokenizer, [batch, batch], PACKED, teacher=teacher)
    after = teacher.model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert not teacher.model.training
    assert not any(p.requires_grad for p in teacher.model.parameters())
    own = {f"model.{name}" for name, _ in module.model.named_parameters()}
    assert {name for name, _ in module.named_parameters()} == own
    assert not [key for key in module.state_dict() if "teacher" in key]
    # Full context, row by row as all at once.
    enc, lengths = teacher.model.encode(batch.features, batch.feature_lengths, None, None)
    logits = teacher.model.join_packed(enc, lengths, batch.targets, batch.target_lengths)
    expected = collapsed_log_probs(logits, batch.targets, lengths, batch.target_lengths, 0)
    torch.testing.assert_close(teacher.log_probs(batch), expected, rtol=1e-5, atol=1e-5)


def test_the_teacher_rests_while_ctc_trains_alone_and_at_empty_batches(tokenizer):
    class Silent(Teacher):
        def log_probs(self, batch):
            raise AssertionError("asked")

    teacher = Silent(make_teacher(tokenizer).model, 1)
    batches = [make_batch([0, 1]), empty_batch()]
    module = one_step(tokenizer, batches, PACKED, "loss.ctc_first=1.0", teacher=teacher)
    assert module.last_step_metrics["distillation_loss"] == ""
    module = one_step(tokenizer, [empty_batch()], PACKED, teacher=teacher)
    assert module.last_step_metrics["distillation_loss"] == 0.0
    assert module.last_step_metrics["grad_norm"] == 0.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_loss_sees_what_the_config_says(tokenizer, monkeypatch, dtype):
    seen = []
    original = asr_ascend.training.objective.distilled_rnnt_loss

    def spy(logits, teacher, targets, *sizes, **options):
        assert teacher.shape == (len(logits), 3)
        assert options.pop("emission_windows").shape == (*targets.shape, 2)
        assert options["band"] is None
        seen.append({"dtype": logits.dtype, **options})
        return original(logits, teacher, targets, *sizes, emission_windows=None, **options)

    monkeypatch.setattr(asr_ascend.training.objective, "distilled_rnnt_loss", spy)
    overrides = (f"loss.dtype={dtype}", "loss.fastemit_lambda=0.01", "loss.reuse_logits=false")
    more = ("loss.alignment_frames=[1,5]", "distillation.block_bytes=99", "loss.backend=cpu")
    one_step(
        tokenizer, [make_batch([0, 1])], PACKED, *overrides, *more, teacher=make_teacher(tokenizer)
    )
    assert seen == [
        {
            "dtype": getattr(torch, dtype),
            "blank": 0,
            "reduction": "sum",
            "fastemit_lambda": 0.01,
            "delay_penalty": 0.0,
            "band": None,
            "backend": "cpu",
            "reuse_logits": False,
            "block_bytes": 99,
        }
    ]


def test_a_student_is_trained_from_a_checkpoint(tiny_run, tmp_path):
    """The whole command, with a file name that Hydra would need quoted."""
    teacher = tmp_path / "a (b), c.ckpt"
    shutil.copy(tiny_run.checkpoint, teacher)
    arguments = (*TINY, *BLANK_LAST, f"data.train_manifest={tiny_run.manifest}", PACKED)
    arguments += ("trainer.max_steps=60", "trainer.chunk_frames=[8]", "loss.ctc_first=0.5")
    done = run("train", *arguments, f"distillation.teacher={teacher}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "outputs" / "smoke"
    with (folder / "metrics.csv").open(encoding="utf-8") as stream:
        losses = [row["distillation_loss"] for row in csv.DictReader(stream) if row["loss"]]
    assert losses[:30] == [""] * 30
    values = [float(loss) for loss in losses[30:]]
    assert len(values) == 30
    assert sum(values[-5:]) < 0.5 * sum(values[:5])
    saved = read_checkpoint(folder / "checkpoints" / "last.ckpt")
    assert not [key for key in saved["state_dict"] if "teacher" in key]
    again = run("train", *arguments, f"distillation.teacher={teacher}", folder=tmp_path)
    assert again.stderr == "outputs/smoke holds this very run, finished; force=true trains again.\n"


def test_a_teacher_with_other_tokens_is_one_sentence(tiny_run, tmp_path):
    arguments = (*TINY, f"data.train_manifest={tiny_run.manifest}", PACKED, "loss.blank=0")
    done = run("train", *arguments, f"distillation.teacher={tiny_run.checkpoint}", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: `distillation.teacher` must have the student's tokens (7 with blank 0), but "
        f"{tiny_run.checkpoint} has 7 with blank 6, other ones."
    )


def test_a_teacher_of_another_rate_is_one_sentence(tiny_run):
    tokenizer = load_model(tiny_run.checkpoint).tokenizer
    with pytest.raises(ConfigError) as caught:
        load_teacher(tiny_run.checkpoint, tokenizer, 80, 8000, 2**20)
    assert str(caught.value) == (
        "`distillation.teacher` must have the student's `data.sample_rate_hz` (8000), but "
        f"{tiny_run.checkpoint} has 16000."
    )


def test_a_teacher_that_is_no_checkpoint_is_one_sentence(tiny_run, tmp_path):
    arguments = (*TINY, f"data.train_manifest={tiny_run.manifest}", PACKED)
    done = run("train", *arguments, "distillation.teacher=gone.ckpt", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: `distillation.teacher` must be a checkpoint, but gone.ckpt is not a file."
    )
