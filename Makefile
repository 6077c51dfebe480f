# `make` alone lists the targets. Every target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := pyproject.toml $(shell find kernels -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.map' -o -name CMakeLists.txt)
PYTEST_ARGS ?=
# Of torch_npu over a stand-in for CANN. NPU_TESTS: 0 leaves these tests out; 1 fails where they
# can't run, which otherwise is a reason to skip them.
NPU_VENV ?= .venv-npu
NPU_TESTS ?=
# Of real frameworks; PEERS_TESTS as NPU_TESTS.
PEERS_VENV ?= .venv-peers
PEERS_TESTS ?=
export NPU_VENV NPU_TESTS PEERS_VENV PEERS_TESTS
MAKE_NPU_VENV = kernels/cann_standin/make_venv.sh $(NPU_VENV) $(PYTHON) $(BIN)/cmake
MAKE_PEERS_VENV = tests/support/make_peers_venv.sh $(PEERS_VENV) $(BIN)/python

# OpenMP's threads otherwise spin for milliseconds, and slow down whoever else uses the cores.
export GOMP_SPINCOUNT ?= 10000

.DEFAULT_GOAL := help
.PHONY: help venv venv-npu venv-peers test test-all lint format demo bench wheel clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python $(NATIVE)
	@echo "Installing into $(VENV) (torch is large: minutes on a slow line) ..."
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

venv: $(STAMP) ## make .venv and install the package editable, CPU library built

venv-npu: $(STAMP) ## make .venv-npu: torch_npu over a stand-in for CANN, for tests alone
	$(MAKE_NPU_VENV)

venv-peers: $(STAMP) ## make .venv-peers: SpeechBrain, NeMo and ESPnet, for tests alone
	$(MAKE_PEERS_VENV)

test: $(STAMP) ## set up and run the tests that take minutes at most
	@[ "$(NPU_TESTS)" = 0 ] || $(MAKE_NPU_VENV) || [ "$(NPU_TESTS)" != 1 ]
	$(BIN)/python -m pytest -n auto -m "not slow and not bench" $(PYTEST_ARGS)

test-all: $(STAMP) ## all tests: slow ones, benchmarks, and narrower instruction sets
	@[ "$(NPU_TESTS)" = 0 ] || $(MAKE_NPU_VENV) || [ "$(NPU_TESTS)" != 1 ]
	@[ "$(PEERS_TESTS)" = 0 ] || $(MAKE_PEERS_VENV) || [ "$(PEERS_TESTS)" != 1 ]
	$(BIN)/python -m pytest -n auto -m "not bench" $(PYTEST_ARGS)
	$(BIN)/python -m tests.support.instruction_sets
	$(BIN)/python -m pytest -m bench $(PYTEST_ARGS) || [ $$? = 5 ]  # 5: none of these chosen

lint: $(STAMP) ## ruff, mypy, clang-format and the device code's lint; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	git ls-files 'kernels/*.cpp' 'kernels/*.h' 'kernels/*.inl' | xargs -r $(BIN)/clang-format --dry-run --Werror
	$(BIN)/python kernels/device_lint/lint_device_code.py

format: $(STAMP) ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	git ls-files 'kernels/*.cpp' 'kernels/*.h' 'kernels/*.inl' | xargs -r $(BIN)/clang-format -i

demo: $(STAMP) ## make a corpus, train, evaluate, transcribe: the main job, on this machine's CPU
	$(BIN)/python -m asr_ascend.data.synthesis --out data/demo
	$(BIN)/python -m asr_ascend.train experiment=demo resume=true
	$(BIN)/python -m asr_ascend.evaluate checkpoint=outputs/demo/checkpoints/last.ckpt
	@echo "Its transcript, heard as a stream:"
	@$(BIN)/python -m asr_ascend.transcribe wav=outputs/demo/example.wav \
	  checkpoint=outputs/demo/checkpoints/last.ckpt
	@echo "Checkpoint: outputs/demo/checkpoints/last.ckpt"

bench: $(STAMP) ## measure the loss beside its peers and fill in the READMEs' tables: ten minutes
	$(BIN)/python -m benchmarks --json benchmarks/results/loss.json
	$(BIN)/python -m benchmarks.cost_curve --json benchmarks/results/cost_curve.json \
	  --png docs/rnnt_loss_cost.png
	$(BIN)/python -m benchmarks.readme

wheel: $(STAMP) ## build the sdist and the wheel into dist/
	$(BIN)/python -m build

clean: ## remove what was built; keeps data/, outputs/ and .venv
	rm -rf build dist
