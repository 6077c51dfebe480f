"""The operator's documents say what its definition says."""

import re
from pathlib import Path

import pytest

OPERATOR = Path(__file__).resolve().parents[3] / "kernels" / "rnnt_loss_fused"
DEFINITION = (OPERATOR / "op_host" / "rnnt_loss_fused_def.cpp").read_text()
README = (OPERATOR / "README.md").read_text()
OPERANDS = re.findall(r'(?:AddInput|AddOutput|Attr)\("(\w+)"', DEFINITION)
TYPES = {"kLogitsTypes": r"(?:float32, float16, bfloat16|as logits)", "kFloat32": "float32"}
TYPES["kInt32"] = "int32"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("( ", "(")


@pytest.mark.parametrize("name", dict.fromkeys(OPERANDS))
def test_readme_lists_every_operand_and_attribute(name: str) -> None:
    rows = re.findall(rf"^\| {name} \|.*$", README, re.MULTILINE)
    assert len(rows) == 1
    for types in re.findall(rf'"{name}", (?:\w+, )?(k\w+)(?:, \w+)?\)', DEFINITION):
        assert re.search(rf"\| {TYPES[types]} \| ND \|", rows[0]), rows[0]


def test_readme_has_the_defaults() -> None:
    defaults = re.findall(r'Attr\("(\w+)"\).AttrType\(OPTIONAL\)\.\w+\(([\w.-]+?)f?\)', DEFINITION)
    assert defaults == [
        ("blank", "-1"),
        ("clamp", "-1.0"),
        ("fused_log_softmax", "true"),
        ("needs_grad", "true"),
        ("blank_in_targets", "false"),
        ("fastemit_lambda", "0.0"),
    ]
    for name, value in defaults:
        assert re.search(rf"^\| {name} \| attribute[\w ]*, default {value} \|", README, re.M)


@pytest.mark.parametrize("operator", re.findall(r"OP_ADD\((\w+)\)", DEFINITION))
def test_document_has_both_phases_in_the_order_of_the_definition(operator: str) -> None:
    document = squeezed((OPERATOR / "docs" / f"aclnn{operator}.md").read_text())
    prototype = re.search(rf"aclnn{operator}GetWorkspaceSize\((.*?)\);", document).group(1)
    names = [re.split(r"[ *]", argument)[-1] for argument in prototype.split(", ")]
    common = ["logits", "targets", "logitLengths", "targetLengths"]
    restrictions = ["bandOptional", "emissionWindowsOptional"]
    assert (
        names
        == {
            "RnntLossFused": [
                *common,
                *restrictions,
                *["blank", "clamp", "fusedLogSoftmax", "blankInTargets"],
                *["lossOut", "gradOut", "statusOutOptional"],
                *["workspaceSize", "executor"],
            ],
            "RnntLossForward": [
                *common,
                *restrictions,
                *["blank", "fusedLogSoftmax", "needsGrad", "blankInTargets"],
                *["lossOut", "stateOut", "statusOutOptional"],
                *["workspaceSize", "executor"],
            ],
            "RnntLossBackward": [
                *common,
                *["state", "gradLoss", *restrictions],
                *["blank", "clamp", "fusedLogSoftmax", "fastemitLambda"],
                *["blankInTargets", "gradOut"],
                *["workspaceSize", "executor"],
            ],
        }[operator]
    )
    second = (
        f"aclnnStatus aclnn{operator}(void* workspace, uint64_t workspaceSize, "
        "aclOpExecutor* executor, aclrtStream stream);"
    )
    assert second in document


def test_double_of_the_generated_header_is_the_documented_prototype() -> None:
    header = squeezed((OPERATOR / "tests/acl_double/aclnn_rnnt_loss_fused.h").read_text())
    document = squeezed((OPERATOR / "docs" / "aclnnRnntLossFused.md").read_text())
    declarations = re.findall(r"aclnnStatus aclnn\w+\(.*?\);", header)
    assert len(declarations) == 2
    for declaration in declarations:
        assert declaration in document


def test_status_values_are_documented() -> None:
    header = (OPERATOR / "op_kernel" / "rnnt_loss_fused_tiling_key.h").read_text()
    values = re.findall(r"#define RNNT_LOSS_STATUS_\w+ (\d+)", header)
    document = (OPERATOR / "docs" / "aclnnRnntLossFused.md").read_text()
    table = document[document.index("### Status") :]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == values


def test_links_lead_somewhere() -> None:
    for document in (OPERATOR / "README.md", *(OPERATOR / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+?)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
