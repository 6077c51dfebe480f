"""The operators as torch sees them: opcheck, torch.compile, vmap; and copies of the module."""

import copy
import io
import math
import pickle

import pytest
import torch

from asr_ascend.losses import RNNTLoss, rnnt_loss, rnnt_loss_and_grad
from tests.support.small_batch import (
    BATCH,
    LOGIT_LENGTHS,
    TARGET_LENGTHS,
    TARGETS,
    UPSTREAM,
    V,
    gradient_of,
    make_logits,
)

OPS = torch.ops.asr_ascend
VMAP_MESSAGE = (
    "`rnnt_loss` can't run under torch.vmap: it takes a whole batch already, so call it once with "
    "all samples along the batch dimension."
)


class TestOpcheck:
    """Padded logits with full lengths: the unused end of the state of a ragged batch is NaN."""

    full_batch = TARGETS, torch.full((3,), 4), torch.full((3,), 2)

    def arguments(self, packed):
        batch = BATCH if packed else self.full_batch
        return make_logits(packed), (*batch, 4, -1.0, True, 0.0, 0.0, False, None, None)

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("needs_grad", [True, False])
    @pytest.mark.parametrize("reuse_logits", [True, False])
    def test_forward(self, packed, needs_grad, reuse_logits):
        logits, problem = self.arguments(packed)
        torch.library.opcheck(
            OPS.rnnt_loss_forward.default,
            (logits.requires_grad_(needs_grad), *problem, needs_grad, reuse_logits),
        )

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("operator", ["rnnt_loss_backward", "rnnt_loss_backward_"])
    def test_backward(self, packed, operator):
        logits, problem = self.arguments(packed)
        _, state = OPS.rnnt_loss_forward(logits, *problem, True, False)
        torch.library.opcheck(
            getattr(OPS, operator).default, (UPSTREAM.double(), logits, state, *problem)
        )

    def test_autograd_registration_of_the_gradient(self):
        logits, problem = self.arguments(True)
        _, state = OPS.rnnt_loss_forward(logits, *problem, True, False)
        torch.library.opcheck(
            OPS.rnnt_loss_backward.default,
            (UPSTREAM.double(), logits.requires_grad_(), state, *problem),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )


class TestCompile:
    @pytest.fixture(autouse=True)
    def forget_compiled_graphs(self):
        torch._dynamo.reset()

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("reuse_logits", [True, False])
    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    @pytest.mark.parametrize("graph_backend", ["eager", "aot_eager"])
    def test_whole_graph(self, graph_backend, reduction, reuse_logits, packed):
        def loss(logits):
            return rnnt_loss(logits, *BATCH, reduction=reduction, reuse_logits=reuse_logits)

        compiled = torch.compile(loss, fullgraph=True, backend=graph_backend)
        expected = gradient_of(loss, make_logits(packed))
        actual = gradient_of(compiled, make_logits(packed))
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    @pytest.mark.parametrize("packed", [True, False])
    def test_second_shape_is_dynamic(self, packed):
        """torch.compile makes sizes symbolic once they change, with no word from the caller."""
        compiled = torch.compile(rnnt_loss, fullgraph=True, backend="aot_eager")
        for size in (2, 3, 5):
            logits = torch.zeros((size * 4, 7) if packed else (size, 4, 1, 7))
            lengths = torch.full((size,), 4), torch.zeros(size, dtype=torch.int64)
            loss = compiled(logits, torch.zeros(size, 2, dtype=torch.int64), *lengths)
            assert loss.item() == pytest.approx(4 * math.log(7), rel=1e-6)

    @pytest.mark.parametrize("reuse_logits", [True, False])
    def test_inductor_with_the_joiner_in_the_graph(self, reuse_logits):
        weight = torch.randn(V, V, generator=torch.Generator().manual_seed(1)).requires_grad_()

        def step(hidden, weight):
            return rnnt_loss(hidden @ weight, *BATCH, reuse_logits=reuse_logits)

        loss = step(make_logits(), weight)
        (expected,) = torch.autograd.grad(loss, weight)
        compiled_loss = torch.compile(step, fullgraph=True)(make_logits(), weight)
        (actual,) = torch.autograd.grad(compiled_loss, weight)
        torch.testing.assert_close(compiled_loss, loss)
        torch.testing.assert_close(actual, expected)

    def test_dynamic_shapes_without_recompilation(self):
        def loss(logits, targets, logit_lengths, target_lengths):
            return rnnt_loss(logits, targets, logit_lengths, target_lengths, reduction="sum")

        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
        for frames, vocab_size in ((4, 5), (6, 9), (7, 12)):
            logits = torch.zeros(1, frames, 1, vocab_size, requires_grad=True)
            none = torch.zeros(1, 3, dtype=torch.int64), torch.tensor([frames]), torch.tensor([0])
            with torch.compiler.set_stance("default" if frames == 4 else "fail_on_recompile"):
                cost = compiled(logits, *none)
            assert cost.item() == pytest.approx(frames * math.log(vocab_size), rel=1e-6)

    def test_values_are_checked_when_the_graph_runs(self):
        compiled = torch.compile(rnnt_loss, fullgraph=True, backend="aot_eager")
        with pytest.raises(ValueError) as raised:
            compiled(make_logits(), TARGETS + 4, LOGIT_LENGTHS, TARGET_LENGTHS)
        # torch 2.9 adds where in the graph it happened.
        assert str(raised.value).partition("\n")[0] == (
            "`targets` must not contain `blank`, but is 4 at position 0 of sample 0."
        )

    def test_loss_and_grad(self):
        def both(logits):
            return rnnt_loss_and_grad(logits, *BATCH)

        expected = both(make_logits())
        actual = torch.compile(both, fullgraph=True, backend="aot_eager")(make_logits())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


MODULE_ARGUMENTS = {
    "blank": 0,
    "clamp": 0.1,
    "reduction": "sum",
    "fused_log_softmax": False,
    "fastemit_lambda": 0.25,
    "delay_penalty": 0.01,
    "reuse_logits": True,
    "backend": "cpu",
}


class TestModule:
    module = RNNTLoss(**MODULE_ARGUMENTS)

    def test_shows_its_arguments(self):
        assert repr(self.module) == (
            "RNNTLoss(blank=0, clamp=0.1, reduction='sum', fused_log_softmax=False, "
            "fastemit_lambda=0.25, delay_penalty=0.01, blank_in_targets='error', "
            "topology='regular', reuse_logits=True, backend='cpu', validate=False)"
        )

    @pytest.mark.parametrize(
        "duplicate", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
    )
    def test_copies_keep_the_arguments(self, duplicate):
        module = duplicate(self.module)
        assert {name: getattr(module, name) for name in MODULE_ARGUMENTS} == MODULE_ARGUMENTS
        log_probs = make_logits().log_softmax(-1)
        batch = TARGETS.clamp(min=1), LOGIT_LENGTHS, TARGET_LENGTHS
        assert torch.equal(
            module(log_probs, *batch), rnnt_loss(log_probs, *batch, **MODULE_ARGUMENTS)
        )

    def test_saves_whole_and_has_no_state(self):
        file = io.BytesIO()
        torch.save(self.module, file)
        file.seek(0)
        assert repr(torch.load(file, weights_only=False)) == repr(self.module)
        assert self.module.state_dict() == {}

    def test_defaults_are_the_functions(self):
        assert torch.equal(RNNTLoss()(make_logits(), *BATCH), rnnt_loss(make_logits(), *BATCH))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("in_dims", [(0, None, None, None), (0, 0, 0, 0)])
def test_vmap_is_refused(backend, in_dims):
    logits = torch.stack([make_logits(), make_logits()])
    batch = BATCH if in_dims[1] is None else [torch.stack([index, index]) for index in BATCH]

    def loss(logits, targets, logit_lengths, target_lengths):
        return rnnt_loss(logits, targets, logit_lengths, target_lengths, backend=backend)

    with pytest.raises(RuntimeError) as raised:
        torch.vmap(loss, in_dims=in_dims)(logits, *batch)
    assert str(raised.value) == VMAP_MESSAGE


@pytest.mark.parametrize("operator", ["rnnt_loss_backward", "rnnt_loss_backward_"])
def test_vmap_over_the_gradient_is_refused(operator):
    logits = make_logits()
    problem = (*BATCH, 4, -1.0, True, 0.0, 0.0, False, None, None)
    _, state = OPS.rnnt_loss_forward(logits, *problem, True, False)

    def gradient(upstream):
        return getattr(OPS, operator)(upstream, logits, state, *problem)

    with pytest.raises(RuntimeError) as raised:
        torch.vmap(gradient)(torch.ones(2, 3, dtype=torch.float64))
    assert str(raised.value) == VMAP_MESSAGE


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_forward_mode_is_refused(backend):
    """The operators would drop the tangent, and the derivative would be 0."""
    logits = make_logits()
    with pytest.raises(RuntimeError) as raised:
        torch.func.jvp(lambda z: rnnt_loss(z, *BATCH, backend=backend), (logits,), (logits,))
    assert str(raised.value) == (
        "`rnnt_loss` has no forward-mode derivative (torch.func.jvp and jacfwd, "
        "torch.autograd.forward_ad): only backward gives its gradient."
    )


class TestDirectCalls:
    """What rnnt.py never does must not lead the kernel out of a tensor."""

    problem = (*BATCH, 4, -1.0, True, 0.0, 0.0, False, None, None)

    def test_lengths_of_another_batch(self):
        with pytest.raises(RuntimeError) as raised:
            OPS.rnnt_loss_forward(
                make_logits(),
                TARGETS,
                LOGIT_LENGTHS[:2],
                TARGET_LENGTHS,
                *self.problem[3:],
                True,
                False,
            )
        assert str(raised.value) == (
            "targets, logit_lengths and target_lengths must be of one batch."
        )

    @pytest.mark.parametrize("operator", ["rnnt_loss_backward", "rnnt_loss_backward_"])
    def test_state_or_upstream_gradient_of_another_batch(self, operator):
        _, state = OPS.rnnt_loss_forward(make_logits(), *self.problem, True, False)
        for upstream, planes in ((UPSTREAM, state[:-1]), (UPSTREAM[:2], state)):
            with pytest.raises(RuntimeError) as raised:
                getattr(OPS, operator)(upstream, make_logits(), planes, *self.problem)
            assert str(raised.value) == (
                "grad_costs and state must be those of rnnt_loss_forward's outputs."
            )

    def test_strided_vocabulary(self):
        expected = rnnt_loss_and_grad(make_logits(), *BATCH)
        strided = make_logits().T.contiguous().T
        costs, state = OPS.rnnt_loss_forward(strided, *self.problem, True, False)
        ones = torch.ones_like(costs)
        grad = OPS.rnnt_loss_backward(ones, strided, state, *self.problem)
        OPS.rnnt_loss_backward_(ones, strided, state, *self.problem)
        assert torch.equal(costs.float(), expected[0])
        assert torch.equal(grad, expected[1])
        assert torch.equal(strided, expected[1])
        assert strided._version == 1
