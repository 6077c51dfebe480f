"""The loss under autograd: second derivatives, reuse of the logits, memory, strides, dtypes."""

import threading

import pytest
import torch

from asr_ascend.losses import rnnt_loss, rnnt_loss_and_grad
from asr_ascend.losses.backends import cpu_library
from tests.support.small_batch import BATCH, V, gradient_of, make_logits

OPS = torch.ops.asr_ascend


class TestAutocast:
    """The loss runs in the dtype it is given, whatever autocast says."""

    @pytest.mark.parametrize("backend", ["cpu", "reference"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_does_not_change_the_loss(self, backend, dtype):
        def loss(logits):
            with torch.autocast("cpu", torch.bfloat16):
                return rnnt_loss(logits, *BATCH, reduction="none", backend=backend)

        def plain_loss(logits):
            return rnnt_loss(logits, *BATCH, reduction="none", backend=backend)

        expected = gradient_of(plain_loss, make_logits(dtype=dtype))
        actual = gradient_of(loss, make_logits(dtype=dtype))
        assert actual[1].dtype == dtype
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    @pytest.mark.parametrize("reuse_logits", [True, False])
    def test_takes_the_bfloat16_logits_of_a_linear_layer(self, reuse_logits):
        weight = torch.randn(V, V, generator=torch.Generator().manual_seed(1)).requires_grad_()
        hidden = make_logits()
        with torch.autocast("cpu", torch.bfloat16):
            logits = torch.nn.functional.linear(hidden, weight)
            loss = rnnt_loss(logits, *BATCH, reuse_logits=reuse_logits)
        assert logits.dtype == torch.bfloat16
        assert loss.dtype == torch.float32
        loss.backward()
        rounded = logits.detach() if not reuse_logits else (hidden.bfloat16() @ weight.bfloat16().T)
        _, grad = gradient_of(lambda z: rnnt_loss(z, *BATCH), rounded)
        torch.testing.assert_close(
            weight.grad, (grad.T @ hidden.bfloat16()).float(), rtol=2e-2, atol=2e-2
        )


class TestSecondDerivative:
    def gradient_with_graph(self, backend, **options):
        logits = make_logits(dtype=torch.float64).requires_grad_()
        loss = rnnt_loss(logits * 1, *BATCH, backend=backend, **options)
        (grad,) = torch.autograd.grad(loss, logits, create_graph=True)
        return grad

    def test_cpu_refuses(self):
        grad = self.gradient_with_graph("cpu")
        with pytest.raises(RuntimeError) as raised:
            grad.square().sum().backward()
        assert str(raised.value) == (
            '`rnnt_loss` with backend="cpu" has no second derivative; backend="reference" has.'
        )

    def test_cpu_refuses_for_the_upstream_gradient_too(self):
        """d grad / d upstream is a second derivative as well, and would be silently 0."""
        upstream = torch.ones(3, dtype=torch.float64, requires_grad=True)
        logits = make_logits(dtype=torch.float64).requires_grad_()
        costs = rnnt_loss(logits, *BATCH, reduction="none")
        (grad,) = torch.autograd.grad(costs, logits, upstream, create_graph=True)
        with pytest.raises(RuntimeError, match="has no second derivative"):
            torch.autograd.grad(grad.sum(), upstream)

    def test_cpu_with_reuse_refuses_to_make_a_graph(self):
        with pytest.raises(RuntimeError) as raised:
            self.gradient_with_graph("cpu", reuse_logits=True)
        assert str(raised.value) == (
            "`rnnt_loss` with `reuse_logits=True` can't run backward with create_graph=True: "
            'second derivatives need backend="reference".'
        )

    @pytest.mark.parametrize("options", [{}, {"clamp": 0.05}, {"fused_log_softmax": False}])
    def test_reference_is_right(self, options):
        batch = torch.tensor([[1], [0]]), torch.tensor([2, 1]), torch.tensor([1, 0])
        logits = torch.randn(5, 3, dtype=torch.float64).log_softmax(-1).requires_grad_()

        def costs(logits):
            return rnnt_loss(logits, *batch, reduction="none", backend="reference", **options)

        assert torch.autograd.gradgradcheck(costs, logits)


class TestReuseLogits:
    def test_the_gradient_takes_the_place_of_the_logits(self):
        leaf = make_logits().requires_grad_()
        logits = leaf * 1
        given = logits.detach()
        gradients = []
        logits.register_hook(gradients.append)
        rnnt_loss(logits, *BATCH, reuse_logits=True).backward()
        expected = gradient_of(lambda z: rnnt_loss(z, *BATCH), make_logits())[1]
        assert gradients[0].data_ptr() == given.data_ptr()
        assert torch.equal(given, expected)
        assert torch.equal(leaf.grad, expected)

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
    @pytest.mark.parametrize("options", [{}, {"clamp": 0.1}, {"fused_log_softmax": False}])
    def test_same_gradient_as_without(self, packed, dtype, options):
        logits = make_logits(packed, dtype).log_softmax(-1)

        def loss(z, reuse_logits=False):
            return rnnt_loss(z, *BATCH, reduction="none", reuse_logits=reuse_logits, **options)

        expected = gradient_of(loss, logits)
        actual = gradient_of(lambda z: loss(z, reuse_logits=True), logits)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    def test_strided_rows_leave_what_lies_between(self):
        wide = torch.full((len(make_logits()), V + 3), 7.0)
        wide[:, :V] = make_logits()
        leaf = wide.clone().requires_grad_()
        base = leaf * 1
        rnnt_loss(base[:, :V], *BATCH, reuse_logits=True).backward()
        expected = gradient_of(lambda z: rnnt_loss(z, *BATCH), make_logits())[1]
        assert torch.equal(base.detach()[:, :V], expected)
        assert torch.equal(base.detach()[:, V:], torch.full_like(wide[:, V:], 7.0))
        assert torch.equal(leaf.grad[:, :V], expected)

    def test_version_counter_moves(self):
        logits = make_logits().requires_grad_() * 1
        loss = rnnt_loss(logits, *BATCH, reuse_logits=True)
        assert logits._version == 0
        loss.backward()
        assert logits._version == 1

    def test_another_consumer_that_saved_the_logits_raises(self):
        logits = make_logits().requires_grad_() * 1
        other = logits.square().sum()
        loss = rnnt_loss(logits, *BATCH, reuse_logits=True)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            other.backward()

    def test_the_producer_that_saved_the_logits_raises(self):
        logits = make_logits().requires_grad_().tanh()
        loss = rnnt_loss(logits, *BATCH, reuse_logits=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_two_losses_of_the_same_logits_raise(self):
        logits = make_logits().requires_grad_() * 1
        losses = [rnnt_loss(logits, *BATCH, reuse_logits=True) for _ in range(2)]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sum(losses).backward()

    def test_second_backward(self):
        logits = make_logits().requires_grad_() * 1
        loss = rnnt_loss(logits, *BATCH, reuse_logits=True)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError) as raised:
            loss.backward()
        assert str(raised.value) == (
            "`rnnt_loss` with `reuse_logits=True` can run backward only once: the first backward "
            "pass has put the gradient in the place of the logits."
        )

    def test_logits_changed_before_backward_raise(self):
        logits = make_logits().requires_grad_() * 1
        loss = rnnt_loss(logits, *BATCH, reuse_logits=True)
        logits.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_nothing_to_reuse(self):
        logits = make_logits()
        expected = rnnt_loss(logits.clone(), *BATCH)
        assert torch.equal(rnnt_loss(logits, *BATCH, reuse_logits=True), expected)
        assert torch.equal(logits, make_logits())
        assert logits._version == 0


class TestLossAndGrad:
    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("backend", ["cpu", "reference"])
    @pytest.mark.parametrize("reuse_logits", [True, False])
    def test_is_loss_and_backward(self, packed, backend, reuse_logits):
        logits = make_logits(packed)
        leaf = logits.clone().requires_grad_()
        expected = rnnt_loss(leaf, *BATCH, clamp=0.2, reduction="none", backend=backend)
        expected.sum().backward()
        costs, grad = rnnt_loss_and_grad(
            logits, *BATCH, clamp=0.2, reuse_logits=reuse_logits, backend=backend
        )
        assert torch.equal(costs, expected)
        assert torch.equal(grad, leaf.grad)
        assert not costs.requires_grad
        assert not grad.requires_grad
        assert (grad.data_ptr() == logits.data_ptr()) == reuse_logits
        assert torch.equal(logits, grad if reuse_logits else make_logits(packed))

    @pytest.mark.parametrize("backend", ["cpu", "reference"])
    def test_reuse_tells_autograd(self, backend):
        logits = make_logits().requires_grad_() * 1
        other = logits.square().sum()
        rnnt_loss_and_grad(logits, *BATCH, reuse_logits=True, backend=backend)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            other.backward()

    @pytest.mark.parametrize("backend", ["cpu", "reference"])
    def test_in_inference_mode(self, backend):
        expected = rnnt_loss_and_grad(make_logits(), *BATCH, backend=backend)
        with torch.inference_mode():
            logits = make_logits()
            actual = rnnt_loss_and_grad(logits, *BATCH, reuse_logits=True, backend=backend)
            loss = rnnt_loss(make_logits(), *BATCH, backend=backend)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert loss.item() == pytest.approx(expected[0].mean().item(), rel=1e-6)


class TestWithoutGradient:
    @pytest.fixture
    def states(self, monkeypatch):
        """The state that each call of the kernel's forward got."""
        seen = []
        forward = cpu_library.forward

        def record(logits, problem, costs, state):
            seen.append(None if state is None else state.numel())
            return forward(logits, problem, costs, state)

        monkeypatch.setattr(cpu_library, "forward", record)
        return seen

    def test_no_grad_keeps_no_state(self, states):
        logits = make_logits().requires_grad_()
        with torch.no_grad():
            without = rnnt_loss(logits, *BATCH)
        frozen = rnnt_loss(logits.detach(), *BATCH)
        assert states == [None, None]
        kept = rnnt_loss(logits, *BATCH)
        assert states[2] == 5 * len(logits)
        assert torch.equal(without, kept)
        assert torch.equal(frozen, kept)
        assert not without.requires_grad
        assert kept.requires_grad

    def test_padded_state_is_no_larger_than_the_padded_lattice(self, states):
        rnnt_loss(make_logits(False).requires_grad_(), *BATCH)
        assert states == [5 * 3 * 4 * 3]

    def test_operator_called_without_state_has_no_gradient(self):
        logits = make_logits().requires_grad_()
        costs, state = OPS.rnnt_loss_forward(
            logits, *BATCH, 4, -1.0, True, 0.0, 0.0, False, None, None, False, False
        )
        assert state.numel() == 0
        with pytest.raises(RuntimeError) as raised:
            costs.sum().backward()
        assert str(raised.value) == (
            "rnnt_loss_forward must be called with needs_grad=True for a gradient."
        )


class TestStrides:
    def test_rows_are_not_copied(self, monkeypatch):
        pointers = []
        forward = cpu_library.forward
        monkeypatch.setattr(
            cpu_library,
            "forward",
            lambda logits, *rest: pointers.append(logits.data_ptr()) or forward(logits, *rest),
        )
        base = torch.zeros(6, 3, 8, V + 2)
        sliced = base.transpose(0, 1)[:, 1:5, 2:5, 1 : V + 1]  # (3, 4, 3, V)
        sliced.copy_(make_logits(False))
        assert rnnt_loss(sliced, *BATCH).item() == rnnt_loss(make_logits(False), *BATCH).item()
        assert pointers[0] == sliced.data_ptr()

    @pytest.mark.parametrize("packed", [True, False])
    def test_last_dimension_strided(self, packed):
        logits = make_logits(packed)
        expected = gradient_of(lambda z: rnnt_loss(z, *BATCH), logits)
        actual = gradient_of(lambda z: rnnt_loss(z.mT.contiguous().mT, *BATCH), logits.detach())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    def test_expanded_logits(self):
        leaf = torch.randn(1, 4, 3, V, requires_grad=True)
        loss = rnnt_loss(leaf.expand(3, -1, -1, -1), *BATCH, reduction="none")
        loss.sum().backward()
        copied = leaf.detach().expand(3, -1, -1, -1).contiguous().requires_grad_()
        rnnt_loss(copied, *BATCH, reduction="sum").backward()
        torch.testing.assert_close(leaf.grad, copied.grad.sum(0, keepdim=True))


def test_repeated_backward_without_reuse():
    logits = make_logits().requires_grad_()
    loss = rnnt_loss(logits, *BATCH)
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits)
    assert torch.equal(first, second)


def test_activation_checkpointing():
    leaf = make_logits().requires_grad_()
    loss = torch.utils.checkpoint.checkpoint(
        lambda z: rnnt_loss(z * 1, *BATCH, reuse_logits=True), leaf, use_reentrant=False
    )
    loss.backward()
    expected = gradient_of(lambda z: rnnt_loss(z, *BATCH), make_logits())[1]
    assert torch.equal(leaf.grad, expected)


def test_calls_from_several_threads():
    expected = gradient_of(lambda z: rnnt_loss(z, *BATCH), make_logits())
    results = {}

    def work(name):
        results[name] = [
            gradient_of(lambda z: rnnt_loss(z, *BATCH), make_logits()) for _ in range(20)
        ]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in range(3):
        for result in results[name]:
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("dtype", "cost_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_dtypes_of_cost_and_gradient(backend, dtype, cost_dtype):
    logits = make_logits(dtype=dtype).requires_grad_()
    for reduction in ("none", "mean", "sum"):
        costs = rnnt_loss(logits, *BATCH, reduction=reduction, backend=backend)
        assert costs.dtype == cost_dtype
    (grad,) = torch.autograd.grad(costs, logits)
    assert grad.dtype == dtype
    costs, grad = rnnt_loss_and_grad(logits, *BATCH, backend=backend)
    assert (costs.dtype, grad.dtype) == (cost_dtype, dtype)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("shape", [(0, V), (0, 4, 3, V), (0, 0, 1, V)])
def test_batch_of_no_sample(backend, shape):
    none = torch.zeros(0, dtype=torch.int64)
    logits = torch.zeros(shape, requires_grad=True)
    batch = torch.zeros(0, 2, dtype=torch.int64), none, none
    assert rnnt_loss(logits, *batch, reduction="none", backend=backend).shape == (0,)
    assert rnnt_loss(logits, *batch, reduction="mean", backend=backend).isnan()
    total = rnnt_loss(logits, *batch, reduction="sum", backend=backend)
    assert total.item() == 0
    total.backward()
    assert logits.grad.shape == shape
