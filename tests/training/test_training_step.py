"""What a training step hands to the operator, and what its gradient is divided by."""

import dataclasses
from collections import Counter

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

import asr_ascend.train
import asr_ascend.training.objective
from asr_ascend.config.composing import compose_config
from asr_ascend.data.dataset import Batch
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from asr_ascend.training.module import TransducerModule
from asr_ascend.training.objective import Losses, Objective
from tests.support.tiny_runs import TINY, write_corpus

FEATURE_LENGTHS, TARGET_LENGTHS = (40, 60, 33, 52), (2, 5, 1, 3)


@pytest.fixture
def tokenizer():
    return Tokenizer.train(["甲乙丙丁戊"], blank=0)


def make_batch(rows: list[int]) -> Batch:
    """Some of four fixed utterances, padded to the longest of them."""
    draws = torch.Generator().manual_seed(0)
    features = [torch.randn(n, 80, generator=draws) for n in FEATURE_LENGTHS]
    targets = [torch.randint(2, 7, (n,), generator=draws) for n in TARGET_LENGTHS]
    pad = torch.nn.utils.rnn.pad_sequence
    return Batch(
        pad([features[row] for row in rows], batch_first=True),
        torch.tensor([FEATURE_LENGTHS[row] for row in rows]),
        pad([targets[row] for row in rows], batch_first=True),
        torch.tensor([TARGET_LENGTHS[row] for row in rows]),
        [str(row) for row in rows],
    )


def empty_batch() -> Batch:
    none = torch.zeros(0, dtype=torch.int64)
    return Batch(torch.zeros(0, 0, 80), none, torch.zeros(0, 0, dtype=torch.int64), none, [])


class Recorder(TransducerModule):
    """Keeps the gradient that the optimiser would get, before clipping."""

    def configure_gradient_clipping(self, optimizer, *args, **kwargs):
        self.gradients = {
            name: None if p.grad is None else p.grad.clone() for name, p in self.named_parameters()
        }
        super().configure_gradient_clipping(optimizer, *args, **kwargs)


def one_step(tokenizer, batches: list[Batch], *overrides: str, teacher=None) -> Recorder:
    """One optimiser step that accumulates all of `batches`."""
    config = compose_config("train", [*TINY, "loss.ctc_first=0", "trainer.max_steps=1", *overrides])
    torch.manual_seed(0)
    simple_heads = config.loss.band == "simple"
    model = build_transducer(
        tokenizer.vocab_size, tokenizer.blank, config.model, simple_heads=simple_heads
    )
    module = Recorder(model, tokenizer, config, teacher)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=1,
        accumulate_grad_batches=len(batches),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, train_dataloaders=DataLoader(batches, batch_size=None))
    return module


def assert_same_gradients(first: Recorder, second: Recorder) -> None:
    largest = max(float(g.abs().max()) for g in second.gradients.values())
    for name, gradient in second.gradients.items():
        torch.testing.assert_close(
            first.gradients[name], gradient, rtol=1e-4, atol=1e-5 * largest, msg=name
        )


@pytest.mark.parametrize("by", ["utterances", "tokens"])
def test_uneven_batches_weigh_as_one_big_batch(tokenizer, by):
    apart = [make_batch([0, 1, 2]), make_batch([3])]
    split = one_step(tokenizer, apart, f"loss.normalize_by={by}")
    whole = one_step(tokenizer, [make_batch([0, 1, 2, 3])], f"loss.normalize_by={by}")
    assert_same_gradients(split, whole)
    for key in ("loss", "rnnt_loss", "ctc_loss"):
        expected = whole.last_step_metrics[key]
        assert split.last_step_metrics[key] == pytest.approx(expected, rel=1e-5)
    assert split.last_step_metrics["utterances"] == 4
    assert split.last_step_metrics["tokens"] == 11


def test_sums_are_divided_by_utterances_or_tokens(tokenizer):
    whole = [make_batch([0, 1, 2, 3])]
    by_utterances = one_step(tokenizer, whole, "loss.normalize_by=utterances")
    by_tokens = one_step(tokenizer, whole, "loss.normalize_by=tokens")
    for name, gradient in by_utterances.gradients.items():
        torch.testing.assert_close(gradient, by_tokens.gradients[name] * 11 / 4)


def test_mean_is_each_batchs_own_mean(tokenizer):
    parts = [make_batch([0, 1, 2]), make_batch([3])]
    both = one_step(tokenizer, parts, "loss.reduction=mean")
    first, second = (one_step(tokenizer, [part], "loss.reduction=mean") for part in parts)
    mean = (first.last_step_metrics["loss"] + second.last_step_metrics["loss"]) / 2
    assert both.last_step_metrics["loss"] == pytest.approx(mean, rel=1e-5)
    summed = one_step(tokenizer, [parts[0]], "loss.reduction=sum")
    assert_same_gradients(first, summed)


def test_an_empty_batch_counts_for_nothing(tokenizer):
    alone = one_step(tokenizer, [make_batch([0, 1])])
    beside = one_step(tokenizer, [make_batch([0, 1]), empty_batch()])
    assert_same_gradients(beside, alone)
    assert beside.last_step_metrics["utterances"] == 2


def test_a_step_of_nothing_gives_every_parameter_a_zero_gradient(tokenizer):
    module = one_step(tokenizer, [empty_batch()])
    assert module.last_step_metrics["utterances"] == 0
    assert module.last_step_metrics["grad_norm"] == 0
    for name, gradient in module.gradients.items():
        assert gradient is not None and not gradient.any(), name


def test_ctc_alone_leaves_predictor_and_joiner_a_zero_gradient(tokenizer):
    module = one_step(tokenizer, [make_batch([0, 1])], "loss.ctc_first=1.0")
    assert module.last_step_metrics["rnnt_loss"] == ""
    for name, gradient in module.gradients.items():
        unused = name.startswith(("model.predictor.", "model.joiner."))
        assert bool(gradient.any()) != unused, name


def test_without_ctc_its_head_gets_a_zero_gradient(tokenizer):
    module = one_step(tokenizer, [make_batch([0, 1])], "loss.ctc_weight=0")
    assert not module.gradients["model.ctc_head.weight"].any()
    assert module.gradients["model.joiner.output.weight"].any()


def test_ctc_alone_trains_where_all_that_it_leaves_out_is_frozen(tokenizer):
    frozen = "trainer.freeze=[predictor,joiner]"
    module = one_step(tokenizer, [make_batch([0, 1])], "loss.ctc_first=1.0", frozen)
    for name, gradient in module.gradients.items():
        assert (gradient is None) == name.startswith(("model.predictor.", "model.joiner.")), name
    assert module.gradients["model.ctc_head.weight"].any()


def test_ctc_comes_first_and_alone(tokenizer):
    steps = [make_batch([0, 1])] * 8
    config = compose_config("train", [*TINY, "loss.ctc_first=0.25", "trainer.max_steps=8"])
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, config.model)
    module = TransducerModule(model, tokenizer, config)
    seen = []
    original = module.configure_gradient_clipping

    def watch(optimizer, *args, **kwargs):
        original(optimizer, *args, **kwargs)
        seen.append(module.last_step_metrics["rnnt_loss"] == "")

    module.configure_gradient_clipping = watch
    trainer = Trainer(
        accelerator="cpu",
        max_steps=8,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, train_dataloaders=DataLoader(steps, batch_size=None))
    assert seen == [True] * 2 + [False] * 6


def test_a_gradient_that_is_not_finite_changes_nothing(tokenizer):
    batch = make_batch([0, 1])
    batch.features[0, 3, 5] = float("nan")
    torch.manual_seed(0)
    fresh = build_transducer(tokenizer.vocab_size, 0, compose_config("train", list(TINY)).model)
    module = one_step(tokenizer, [batch])
    assert not module.last_step_metrics["grad_norm"] < float("inf")
    for name, value in fresh.state_dict().items():
        assert torch.equal(module.model.state_dict()[name], value), name


def test_gradients_are_clipped_to_the_norm(tokenizer):
    module = one_step(tokenizer, [make_batch([0, 1])], "trainer.gradient_clip_val=0.5")
    norm = torch.stack([p.grad.norm() for p in module.parameters() if p.grad is not None]).norm()
    assert module.last_step_metrics["grad_norm"] > 0.5
    assert float(norm) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("limit", ["null", "1000"])
def test_gradients_within_the_limit_stay_as_they_are(tokenizer, limit):
    module = one_step(tokenizer, [make_batch([0, 1])], f"trainer.gradient_clip_val={limit}")
    assert 0 < module.last_step_metrics["grad_norm"] < 1000
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter.grad, module.gradients[name]), name


def test_the_chunk_is_a_function_of_seed_and_step(tokenizer):
    overrides = [*TINY, "trainer.chunk_frames=[0,0,25,16,8]", "trainer.left_chunks=[4,8]"]
    config = compose_config("train", overrides)
    model = build_transducer(tokenizer.vocab_size, 0, config.model)
    first, second = (TransducerModule(model, tokenizer, config) for _ in range(2))
    draws = [first.draw_chunk(step) for step in range(2000)]
    assert draws == [second.draw_chunk(step) for step in range(2000)]
    counts = Counter(chunk for chunk, _ in draws)
    assert set(counts) == {None, 25, 16, 8}
    assert counts[None] == pytest.approx(800, abs=80)
    assert {left for chunk, left in draws if chunk} == {4, 8}
    assert {left for chunk, left in draws if chunk is None} == {None}
    other = TransducerModule(model, tokenizer, dataclasses.replace(config, seed=2))
    assert draws != [other.draw_chunk(step) for step in range(2000)]


def test_the_total_weighs_what_trains(tokenizer):
    weights = "loss.ctc_weight=0.25", "distillation.weight=0.5"
    config = compose_config("train", [*TINY, *weights])
    model = build_transducer(tokenizer.vocab_size, 0, config.model)
    objective = Objective(model, 0, config.loss, config.distillation, teacher=None)
    assert objective.total(Losses(ctc=8.0)) == 8.0
    assert objective.total(Losses(ctc=8.0, rnnt=3.0)) == 3.0 + 0.25 * 8.0
    assert objective.total(Losses(ctc=8.0, rnnt=3.0, distillation=2.0)) == 3.0 + 2.0 + 1.0
    assert float(objective.total(Losses(torch.tensor(8.0), torch.tensor(3.0)))) == 5.0


def test_the_fused_joiner_sees_what_the_config_says(tokenizer, monkeypatch):
    seen = []
    original = asr_ascend.training.objective.joiner_rnnt_loss

    def spy(encoder_out, predictor_out, weight, bias, targets, *lengths, **options):
        assert encoder_out.shape[::2] == predictor_out.shape[::2] == (2, 48)
        assert predictor_out.shape[1] == targets.shape[1] + 1
        assert (weight.shape, bias.shape) == ((7, 48), (7,))
        first, last = options.pop("emission_windows").unbind(-1)
        assert (last - first == 1 + 5).all()
        seen.append(options)
        return original(encoder_out, predictor_out, weight, bias, targets, *lengths, **options)

    monkeypatch.setattr(asr_ascend.training.objective, "joiner_rnnt_loss", spy)
    overrides = (
        *("loss.joiner=fused", "loss.clamp=1.0", "loss.reduction=mean", "loss.dtype=bfloat16"),
        *("loss.fastemit_lambda=0.01", "loss.alignment_frames=[1,5]", "loss.backend=cpu"),
        "loss.delay_penalty=0.02",
    )
    one_step(tokenizer, [make_batch([0, 1])], *overrides)
    assert seen == [
        {
            "blank": 0,
            "clamp": 1.0,
            "reduction": "mean",
            "fastemit_lambda": 0.01,
            "delay_penalty": 0.02,
            "band": None,
            "logits_dtype": torch.bfloat16,
            "backend": "cpu",
        }
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ("loss.alignment_frames=[1,2]",),
        ("loss.alignment_frames=null", "loss.reduction=mean"),
        ("loss.clamp=0.1", "loss.fastemit_lambda=0.05"),
        ("loss.normalize_by=tokens", "loss.backend=reference"),
    ],
)
def test_fused_and_packed_joiner_train_the_same(tokenizer, overrides):
    batches = [make_batch([0, 1, 2]), make_batch([3])]
    fused, packed = (
        one_step(tokenizer, batches, f"loss.joiner={joiner}", *overrides)
        for joiner in ("fused", "packed")
    )
    for key in ("loss", "rnnt_loss", "ctc_loss", "grad_norm"):
        expected = pytest.approx(packed.last_step_metrics[key], rel=1e-5)
        assert fused.last_step_metrics[key] == expected
    assert_same_gradients(fused, packed)


@pytest.mark.parametrize("overrides", [("loss.dtype=bfloat16",), ("loss.dtype=float16",)])
def test_fused_and_packed_joiner_round_the_same_logits(tokenizer, overrides):
    fused, packed = (
        one_step(tokenizer, [make_batch([0, 1])], f"loss.joiner={joiner}", *overrides)
        for joiner in ("fused", "packed")
    )
    expected = pytest.approx(packed.last_step_metrics["rnnt_loss"], rel=1e-6)
    assert fused.last_step_metrics["rnnt_loss"] == expected
    assert_same_gradients(fused, packed)


def test_the_operator_sees_what_the_config_says(tmp_path, monkeypatch):
    seen = []
    original = asr_ascend.training.objective.rnnt_loss

    def spy(logits, targets, logit_lengths, target_lengths, **options):
        band = options["band"]
        is_frame = torch.arange(band.shape[1]) < logit_lengths[:, None]
        rows = int(((band[..., 1] - band[..., 0] + 1) * is_frame).sum())
        assert logits.shape == (rows, 7)
        first, last = options["emission_windows"].unbind(-1)
        assert first.shape == targets.shape
        assert (last - first == 1 + 5).all()
        seen.append({"dtype": logits.dtype, **options})
        del seen[-1]["emission_windows"], seen[-1]["band"]
        return original(logits, targets, logit_lengths, target_lengths, **options)

    monkeypatch.setattr(asr_ascend.training.objective, "rnnt_loss", spy)
    monkeypatch.chdir(tmp_path)
    manifest = write_corpus(tmp_path / "corpus")
    overrides = [
        *("loss.blank=0", "loss.clamp=1.0", "loss.reduction=sum", "loss.dtype=bfloat16"),
        *("loss.fastemit_lambda=0.01", "loss.alignment_frames=[1,5]", "loss.joiner=packed"),
        *("trainer.max_epochs=1", "loss.ctc_first=0", f"data.train_manifest={manifest}"),
        "trainer.progress_bar=false",
    ]
    assert asr_ascend.train.main(compose_config("train", [*TINY, *overrides])) == 0
    # One epoch of four batches, whatever trainer.max_steps says.
    assert (
        seen
        == [
            {
                "dtype": torch.bfloat16,
                "blank": 0,
                "clamp": 1.0,
                "reduction": "sum",
                "fused_log_softmax": True,
                "fastemit_lambda": 0.01,
                "delay_penalty": 0.0,
                "reuse_logits": True,
                "backend": None,
            }
        ]
        * 4
    )


def test_log_probabilities_reach_the_operator_where_the_config_says_so(tokenizer, monkeypatch):
    seen = []
    original = asr_ascend.training.objective.rnnt_loss

    def spy(logits, *arguments, **options):
        seen.append((float(logits.detach().exp().sum(-1).sub(1).abs().max()), options))
        return original(logits, *arguments, **options)

    fused = one_step(tokenizer, [make_batch([0, 1])])
    monkeypatch.setattr(asr_ascend.training.objective, "rnnt_loss", spy)
    overrides = "loss.fused_log_softmax=false", "loss.joiner=packed"
    apart = one_step(tokenizer, [make_batch([0, 1])], *overrides)
    (far_from_one, options), *_ = seen
    assert far_from_one < 1e-5
    assert (options["fused_log_softmax"], options["reuse_logits"]) == (False, False)
    assert_same_gradients(apart, fused)


def test_windows_cost_more_than_free_alignments(tokenizer):
    overrides = "loss.alignment_frames=[1,2]", "loss.fastemit_lambda=0.05"
    batch = make_batch([0, 1, 2, 3])
    free = one_step(tokenizer, [batch], "loss.alignment_frames=null")
    held = one_step(tokenizer, [batch], *overrides)
    assert held.last_step_metrics["rnnt_loss"] > free.last_step_metrics["rnnt_loss"] + 1


def test_fastemit_changes_the_gradient_and_not_the_loss(tokenizer):
    plain, sooner = (
        one_step(tokenizer, [make_batch([0, 1])], f"loss.fastemit_lambda={weight}")
        for weight in (0.0, 0.5)
    )
    assert sooner.last_step_metrics["loss"] == plain.last_step_metrics["loss"]
    name = "model.joiner.output.bias"
    difference = sooner.gradients[name] - plain.gradients[name]
    # Labels are pushed up, all else down; blank is 0.
    assert difference[0] > 0.01
    assert difference.sum().abs() < 1e-5
