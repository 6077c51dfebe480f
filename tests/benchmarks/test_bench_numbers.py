"""Wrong numbers are refused, whatever is wrong about them."""

import dataclasses

import pytest
import torch

from benchmarks import checks
from benchmarks.cases import Case
from benchmarks.implementations import IMPLEMENTATIONS, OURS
from benchmarks.measuring import Settings, measure_case

LARGE = Case("large", (60, 70), (20, 20), 1000)  # 2.7 million logits: more than the reference gets


def right(case):
    ours = IMPLEMENTATIONS[OURS]
    logits = torch.empty(case.shape("packed"))
    case.fill(logits)
    return ours.prepare(case.indices())(logits)


@pytest.mark.parametrize("case_name", ["tiny", "large"])
def test_right_numbers_pass(tiny, case_name):
    case = tiny if case_name == "tiny" else LARGE
    assert case.is_small is (case_name == "tiny")
    numbers = checks.check(IMPLEMENTATIONS[OURS], case, *right(case), whole=case.is_small)
    assert numbers["value_error"] < 1e-6 and numbers["gradient_error"] < 1e-6
    assert numbers["value_error_allowed"] == 1e-6
    assert numbers["gradient_error_allowed"] == pytest.approx(1e-5, rel=0.01)


def test_a_wrong_value_is_refused(tiny):
    value, gradient = right(tiny)
    with pytest.raises(checks.WrongNumbersError) as caught:
        checks.check(IMPLEMENTATIONS[OURS], tiny, value * (1 + 1e-5), gradient, whole=True)
    assert str(caught.value) == (
        f"the value is {float(value * (1 + 1e-5)):.9g} instead of "
        f"{checks.expected_value(tiny, torch.float32, 'reference'):.9g} on "
        "3 x 5..9 x 0..3 x 11: off by 1.0e-05, and 1e-06 is allowed"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused(tiny, value):
    _, gradient = right(tiny)
    with pytest.raises(checks.WrongNumbersError, match=f"the value is {value} instead of"):
        checks.check(IMPLEMENTATIONS[OURS], tiny, torch.tensor(value), gradient, whole=True)


@pytest.mark.parametrize("wrong", [1e-4, float("nan")])
@pytest.mark.parametrize("row", [0, 30, 53])
def test_one_wrong_component_is_refused(tiny, row, wrong):
    value, gradient = right(tiny)
    gradient[row, 3] += wrong
    sample = 0 if row < 20 else 1 if row < 47 else 2
    with pytest.raises(checks.WrongNumbersError, match=f"gradient of sample {sample} is off by"):
        checks.check(IMPLEMENTATIONS[OURS], tiny, value, gradient, whole=True)


def test_of_a_large_batch_the_last_sample_is_looked_at():
    value, gradient = right(LARGE)
    gradient[-1, 0] += 1e-4
    with pytest.raises(checks.WrongNumbersError, match=r"sample 1 is off by 1\.0e-04"):
        checks.check(IMPLEMENTATIONS[OURS], LARGE, value, gradient, whole=False)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_types_may_round_and_no_more(tiny, name):
    one = IMPLEMENTATIONS[name]
    logits = torch.empty(tiny.shape("packed"), dtype=one.dtype)
    tiny.fill(logits)
    value, gradient = one.prepare(tiny.indices())(logits)
    checks.check(one, tiny, value, gradient, whole=True)
    with pytest.raises(checks.WrongNumbersError, match="gradient of sample 0 is off"):
        checks.check(one, tiny, value, gradient + 0.01, whole=True)


def planted(name, spoil):
    """Ours, but for what ``spoil`` does to value and gradient."""
    ours = IMPLEMENTATIONS[OURS]

    def prepare(indices):
        call = ours.prepare(indices)
        return lambda logits: spoil(*call(logits))

    return dataclasses.replace(IMPLEMENTATIONS[name], prepare=prepare, layout="packed")


@pytest.mark.parametrize("case_name", ["tiny", "large"])
def test_no_time_for_wrong_numbers(tiny, case_name):
    case = tiny if case_name == "tiny" else LARGE
    wrong = planted("torchaudio", lambda value, gradient: (value, gradient + 0.02))
    settings = Settings(threads=(1,), repetitions=2, seconds=1.0)
    result = measure_case(case, [IMPLEMENTATIONS[OURS], wrong], settings)
    refused, ours = result["results"]
    assert set(refused) == {"implementation", "refused"}
    assert refused["implementation"] == "torchaudio"
    assert refused["refused"].startswith("the gradient of sample 0 is off by 2.0e-02 on ")
    assert refused["refused"].endswith(", and 1.0e-02 is allowed")
    assert ours["implementation"] == OURS and ours["milliseconds"]["median"] > 0


def test_wrong_with_two_threads_alone_is_refused(tiny):
    def spoil(value, gradient):
        return value + (torch.get_num_threads() == 2), gradient

    wrong = planted("torch", spoil)
    settings = Settings(threads=(1, 2), repetitions=2, seconds=1.0)
    results = measure_case(tiny, [wrong], settings)["results"]
    assert [set(entry) for entry in results] == [{"implementation", "refused"}]
