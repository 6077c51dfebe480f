"""joiner_rnnt_loss under autograd: what is made and what isn't, repeated passes, several ranks."""

import copy

import pytest
import torch

from asr_ascend.losses import joiner_rnnt_loss
from asr_ascend.losses.joiner import loss as joiner
from asr_ascend.losses.joiner import rows as joiner_rows
from asr_ascend.losses.joiner.task import Task
from tests.support.joiner_batch import (
    CHUNK_BY_CHUNK,
    EACH_WAY,
    INPUTS,
    SAMPLE_BY_SAMPLE,
    apart,
    fused,
    make_batch,
    relative_errors,
    value_and_gradients,
)

each_way = pytest.mark.parametrize("way", EACH_WAY, ids=("sample", "chunk"))


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Shapes of the matrix products that run inside."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in (
            torch.ops.aten.mm,
            torch.ops.aten.addmm,
            torch.ops.aten.addmm_,
        ):
            left, right = [a for a in args if isinstance(a, torch.Tensor)][-2:]
            self.shapes.append((left.shape[0], left.shape[1], right.shape[1]))
        return function(*args, **(kwargs or {}))


class TestFrozenParts:
    """Nothing is computed for what needs no gradient."""

    ROWS, V, H = 9 * 5 + 5 + 4 + 2 * 5, 11, 6
    FORWARD = (ROWS, H, V)
    FOR_WEIGHT = (V, ROWS, H)
    FOR_INPUTS = (ROWS, V, H)

    @pytest.mark.parametrize(
        ("wanted", "products"),
        [
            (INPUTS, [FORWARD, FOR_WEIGHT, FOR_INPUTS]),
            (("weight",), [FORWARD, FOR_WEIGHT]),
            (("bias",), [FORWARD]),
            (("encoder_out",), [FORWARD, FOR_INPUTS]),
            (("predictor_out", "bias"), [FORWARD, FOR_INPUTS]),
            ((), [FORWARD]),
        ],
        ids=str,
    )
    def test_products_of_the_sample_way(self, wanted, products):
        leaves = make_batch().as_leaves(torch.float32, wanted)
        with Products() as seen:
            loss = fused(leaves)
        assert seen.shapes == products
        assert loss.requires_grad == bool(wanted)

    def test_products_of_the_chunk_way(self):
        leaves = make_batch(lengths=((3, 2),)).as_leaves(torch.float32, ("weight",))
        with Products() as seen:
            loss = fused(leaves, max_bytes=11 * 4 * 8)  # eight rows: two frames and one
        assert seen.shapes == [(6, 6, 11), (3, 6, 11)]
        with Products() as seen:
            loss.backward()
        assert seen.shapes == [(6, 6, 11), (11, 6, 6), (3, 6, 11), (11, 3, 6)]

    @each_way
    @pytest.mark.parametrize("wanted", [(name,) for name in INPUTS] + [INPUTS[:2], INPUTS[1:3]])
    def test_gradients_of_the_rest(self, way, wanted):
        batch = make_batch()
        _, everything = value_and_gradients(fused, batch.as_leaves(torch.float32), **way)
        _, some = value_and_gradients(fused, batch.as_leaves(torch.float32, wanted), **way)
        for name, expected, actual in zip(INPUTS, everything, some, strict=True):
            if name in wanted:
                torch.testing.assert_close(actual, expected, rtol=0, atol=0)
            else:
                assert actual is None


class TestForwardOnly:
    @each_way
    @pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
    @pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
    def test_same_value_and_no_gradient(self, way, context, reduction, monkeypatch):
        leaves = make_batch().as_leaves(torch.float32)
        expected = fused(leaves, reduction=reduction, **way)
        monkeypatch.delattr(Task, "costs_and_gradient")
        with context():
            value = fused(leaves, reduction=reduction, **way)
        assert not value.requires_grad
        torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=1e-6)

    def test_every_reduction_goes_sample_by_sample(self, monkeypatch):
        monkeypatch.delattr(joiner, "costs_chunk_by_chunk")
        leaves = make_batch().as_leaves(torch.float32)
        with torch.no_grad():
            costs = fused(leaves, reduction="none")
        torch.testing.assert_close(costs, apart(leaves, reduction="none").detach())


class TestRepeatedPasses:
    @each_way
    @pytest.mark.parametrize("reduction", ["none", "mean"])
    def test_retained_graph_gives_the_same_again(self, way, reduction):
        leaves = make_batch().as_leaves(torch.float32)
        loss = fused(leaves, reduction=reduction, **way)
        upstream = leaves.upstream(loss)
        first = torch.autograd.grad(loss, leaves.inputs(), upstream, retain_graph=True)
        kept = copy.deepcopy(first)
        third = torch.autograd.grad(loss, leaves.inputs(), 3 * upstream, retain_graph=True)
        again = torch.autograd.grad(loss, leaves.inputs(), upstream)
        torch.testing.assert_close(again, kept, rtol=0, atol=0)
        torch.testing.assert_close(first, kept, rtol=0, atol=0)
        torch.testing.assert_close(third, tuple(3 * g for g in kept))

    @each_way
    def test_without_it_torch_refuses(self, way):
        loss = fused(make_batch().as_leaves(torch.float32), **way)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()

    @each_way
    def test_gradients_accumulate(self, way):
        leaves = make_batch().as_leaves(torch.float32)
        _, once = value_and_gradients(fused, leaves, **way)
        once = [g.clone() for g in once]
        _, twice = value_and_gradients(fused, leaves, 0.5, **way)
        torch.testing.assert_close(twice, [1.5 * g for g in once])

    @each_way
    def test_the_inputs_may_change_between_only_where_they_are_not_needed(self, way):
        leaves = make_batch().as_leaves(torch.float32)
        leaf = leaves.weight
        changed = leaves._replace(weight=leaf * 1)
        loss = fused(changed, **way)
        with torch.no_grad():
            changed.weight.zero_()
        if way is SAMPLE_BY_SAMPLE:
            loss.backward()
            _, expected = value_and_gradients(
                fused, make_batch().as_leaves(torch.float32), -1 / 1.75
            )
            torch.testing.assert_close(leaf.grad, expected[2])
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()

    @pytest.mark.parametrize("name", ["targets", "logit_lengths", "target_lengths"])
    def test_indices_overwritten_before_a_recomputing_backward(self, name):
        """By a loader that fills the same tensors again: refused, as `rnnt_loss` does."""
        leaves = make_batch().as_leaves(torch.float32)
        loss = fused(leaves, **CHUNK_BY_CHUNK)
        getattr(leaves, name).fill_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    @pytest.mark.parametrize("name", INPUTS)
    def test_forward_mode_is_refused(self, name):
        """Without a leaf that requires grad, its derivative would be 0."""
        batch = make_batch()

        def loss(value):
            return fused(batch._replace(**{name: value}))

        with pytest.raises(RuntimeError) as raised:
            torch.func.jvp(loss, (getattr(batch, name),), (getattr(batch, name),))
        assert str(raised.value) == (
            "`joiner_rnnt_loss` has no forward-mode derivative (torch.func.jvp and jacfwd, "
            "torch.autograd.forward_ad): only backward gives its gradient."
        )

    @each_way
    def test_second_derivatives_are_refused(self, way):
        leaves = make_batch().as_leaves(torch.float64)
        loss = fused(leaves, **way)
        with pytest.raises(RuntimeError) as raised:
            torch.autograd.grad(loss, leaves.weight, create_graph=True)
        assert str(raised.value) == (
            "`joiner_rnnt_loss` can't run backward with create_graph=True: second derivatives need "
            'the joiner and `rnnt_loss` with backend="reference".'
        )


class TestInAModel:
    @each_way
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_an_optimiser_step_with_a_gradient_scaler(self, way, dtype):
        batch = make_batch()

        def step(loss):
            torch.manual_seed(0)
            layer = torch.nn.Linear(6, 11)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
            with torch.autocast("cpu", torch.float16, enabled=dtype == torch.float16):
                value = loss(type(batch)(*batch[:2], layer.weight, layer.bias, *batch[4:]))
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0**14  # the step was taken
            return list(layer.parameters())

        expected = step(apart)
        actual = step(lambda batch: fused(batch, **way))
        tolerance = 1e-6 if dtype == torch.float32 else 2e-3
        torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)

    @each_way
    def test_torch_compile_goes_around_it(self, way):
        """The graph breaks at the call; value and gradients stay what they are."""
        rest = make_batch()[4:]

        def model(encoder, predictor, weight, bias):
            return joiner_rnnt_loss(encoder * 2, predictor, weight, bias, *rest, **way) * 3

        runs = []
        for function in (model, torch.compile(model, backend="aot_eager")):
            leaves = make_batch().as_leaves(torch.float32)
            loss = function(*leaves[:4])
            loss.backward()
            runs.append([loss.detach(), *(leaf.grad for leaf in leaves.inputs())])
        torch.testing.assert_close(runs[1], runs[0], rtol=0, atol=0)

    def test_a_full_graph_is_refused(self):
        """By torch: the docstring says so."""
        batch = make_batch()
        compiled = torch.compile(
            lambda *inputs: joiner_rnnt_loss(*inputs, *batch[4:]), fullgraph=True
        )
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"torch\.compiler\.disable"):
            compiled(*batch[:4])

    @each_way
    def test_same_bits_for_any_number_of_threads_of_the_loss(self, way):
        """torch's products may differ by a bit between thread counts; a repeat may not."""
        batch = make_batch(lengths=((60, 20), (50, 11)), vocab=60, width=32)
        runs = [value_and_gradients(fused, batch.as_leaves(torch.float32), **way) for _ in range(2)]
        torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=0)


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = torch.nn.Linear(6, 6)
        self.output = torch.nn.Linear(6, 11)

    def forward(self, batch, **options):
        encoded = self.encoder(batch.encoder_out)
        layer = self.output.weight, self.output.bias
        return fused(batch._replace(encoder_out=encoded, weight=layer[0], bias=layer[1]), **options)


def _rank(rank, store, results):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model = torch.nn.parallel.DistributedDataParallel(_Model())
    for way in EACH_WAY:
        model.zero_grad()
        model(make_batch(seed=rank), reduction="sum", **way).backward()
        results[rank, len(results)] = [p.grad.clone() for p in model.parameters()]
    torch.distributed.destroy_process_group()


def test_two_ranks_of_ddp_average_their_gradients(tmp_path):
    with torch.multiprocessing.Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(_rank, (tmp_path / "store", results), nprocs=2)
        gradients = list(results.values())
    model = _Model()
    for seed in range(2):
        (model(make_batch(seed=seed), reduction="sum") / 2).backward()
    expected = [p.grad for p in model.parameters()]
    assert len(gradients) == 4
    for actual in gradients:
        assert max(relative_errors(actual, expected)) < 2e-6


def test_both_ways_are_chosen_as_documented(monkeypatch):
    taken = []

    def spy(name):
        original = getattr(joiner, name)

        def call(*arguments, **options):
            taken.append(name)
            return original(*arguments, **options)

        return call

    for name in ("costs_sample_by_sample", "costs_chunk_by_chunk", "costs_and_rows"):
        monkeypatch.setattr(joiner, name, spy(name))
    leaves = make_batch().as_leaves(torch.float32)
    largest = 45 * 11 * 4  # the first sample's logits
    fused(leaves, max_bytes=largest)
    fused(leaves, max_bytes=largest - 1)
    fused(leaves, max_bytes=largest // 2, logits_dtype=torch.bfloat16)
    fused(leaves, max_bytes=largest, reduction="none")
    fused(leaves, max_bytes=largest - 1, weights=torch.tensor([0.0, 1.0, 1.0, 1.0]))
    with torch.no_grad():
        fused(leaves, max_bytes=largest, reduction="none")
        fused(leaves, **CHUNK_BY_CHUNK)
    assert joiner._DEFAULT_MAX_BYTES == 4 * 2**30  # as the docstring says
    whole, chunked = "costs_sample_by_sample", "costs_and_rows"
    assert taken == [whole, chunked, whole, chunked, whole, whole, "costs_chunk_by_chunk"]


@pytest.mark.parametrize(
    ("block_rows", "budget_rows", "buffer_rows"),
    [
        (1000, 1000, 45 + 5 + 4 + 10),  # all samples share the buffer
        (1000, 50, 50),  # the first two together, the last two
        (1, 1000, 45),  # one after the other; the largest takes most
        (1000, 45, 45),
    ],
)
def test_one_buffer_serves_all_samples(monkeypatch, block_rows, budget_rows, buffer_rows):
    allocated = []
    original = joiner_rows.JoinerTensors.new_rows

    def spy(joiner, count):
        allocated.append(count)
        return original(joiner, count)

    row_bytes = 11 * 4
    monkeypatch.setattr(joiner_rows.JoinerTensors, "new_rows", spy)
    monkeypatch.setattr(joiner_rows, "BLOCK_BYTES", block_rows * row_bytes)
    fused(make_batch().as_leaves(torch.float32), max_bytes=budget_rows * row_bytes)
    assert allocated == [buffer_rows]
