# Each command sets up `.venv` first.
#   make train   trains, evaluates and exports a model of the digits
#   make check   the quick part for an edit: lint, layers and models on torch, and a model elsewhere
#   make test    lint, then the whole suite on TensorFlow, JAX and PyTorch
#   make nightly the long sweeps that the suite leaves out
#   make fuzz    opens damaged and crafted files by the thousand; dist/fuzz.jsonl
#   make peers   compares speeds with other libraries; dist/peers.json
#   make bench   says what became slower than in another revision, `make bench REV=HEAD~3`
#   make wheel   builds the package into the folder dist
#   make docs    builds the site of the pages into the folder site
#   make lock    pins what requirements.txt and pyproject.toml need, with hashes, in locks
#   make audit   looks the pinned packages up among published vulnerabilities
#   make sbom    dist/sbom.json, what is installed, as CycloneDX
PYTHON ?= python3
KERAS_BACKEND ?= jax
WORKDIR ?= runs/digits
JOBS ?= 4
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .tools
# Takes nothing but the files with the hashes in a lock, and runs no package's build but promise's.
LOCKED := -m pip install --quiet --no-deps --require-hashes --only-binary=:all: --no-binary=promise \
	--no-build-isolation
PROSE := *.md *.py docs configs vit_keras studies tests benchmarks examples tools

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: train check test nightly fuzz peers bench wheel docs lint prose lock audit sbom clean

train: $(VENV)/installed
	KERAS_BACKEND=$(KERAS_BACKEND) $(BIN)/python train.py --workdir $(WORKDIR)
	KERAS_BACKEND=$(KERAS_BACKEND) $(BIN)/python evaluate.py $(WORKDIR)
	KERAS_BACKEND=$(KERAS_BACKEND) $(BIN)/python export.py $(WORKDIR)

# Each on one thread: most of a suite is compiling small models. On two cores, four at a time, since
# a sixth of their time is waiting for disks and other processes; together they take up to 7.5 GB.
# PyTorch's parts, the longest, go first; what is the same on two backends runs there.
# `make test JOBS=2` takes less memory, and some minutes more.
check test nightly: export OMP_NUM_THREADS ?= 1
check test nightly: export TF_NUM_INTRAOP_THREADS ?= 1
test: $(VENV)/installed
	$(MAKE) --jobs=$(JOBS) --output-sync=target \
		test-torch test-weights test-once test-files test-tensorflow test-jax lint

# Long sweeps, of which `make test` runs some cases.
nightly: $(VENV)/installed
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -m nightly
	KERAS_BACKEND=jax $(BIN)/python -m pytest -m "nightly and not once"
	KERAS_BACKEND=torch $(BIN)/python -m pytest -m "nightly and not once"

check: lint
	$(MAKE) --jobs=2 --output-sync=target check-torch smoke-jax smoke-tensorflow

QUICK := not slow and not once and not nightly
check-torch: $(VENV)/installed
	KERAS_BACKEND=torch $(BIN)/python -m pytest -m "$(QUICK)" \
		tests/layers tests/models tests/weights/test_formats.py tests/weights/test_strict.py \
		--ignore=tests/models/test_across_backends.py

smoke-%: $(VENV)/installed
	KERAS_BACKEND=$* $(BIN)/python -m pytest -m "$(QUICK)" tests/models/test_vit.py

fuzz: $(VENV)/installed
	mkdir -p dist
	KERAS_BACKEND=torch $(BIN)/python -m tests.fuzz.count --log dist/fuzz.jsonl

peers: $(VENV)/installed
	mkdir -p dist
	$(BIN)/python -m benchmarks.run --size S --rounds 3 --out dist/peers

# The last release or, without a tag, one commit ago. Fails if something became slower by 5 %.
REV ?= $(shell git describe --tags --abbrev=0 2>/dev/null || echo HEAD~1)
bench: $(VENV)/installed
	$(BIN)/python -m benchmarks.run --against $(REV) --size Ti --batch 2 --augment

wheel: $(VENV)/installed
	$(BIN)/python -m build --no-isolation --outdir dist

# A broken link or a page outside of the navigation is an error.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: prose
	$(BIN)/python -m tools.lock --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.size

# Spelling in American English, style, and the phrases and names that the project avoids.
prose: $(VENV)/installed
	$(BIN)/codespell $(PROSE)
	$(BIN)/python tools/prose.py $(PROSE)

# What is the same on every backend, in two parts that take about equally long.
FILES := $(addprefix tests/,data commands documentation faults fuzz)
test-files: $(VENV)/installed
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -m "once and not nightly" $(FILES)

test-once: $(VENV)/installed
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -m "once and not nightly" \
		$(addprefix --ignore=,$(FILES))

# What a backend computes.
EACH := not once and not nightly
test-torch: $(VENV)/installed
	KERAS_BACKEND=torch $(BIN)/python -m pytest -m "$(EACH)" --ignore=tests/weights

test-weights: $(VENV)/installed
	KERAS_BACKEND=torch $(BIN)/python -m pytest -m "$(EACH)" tests/weights

test-%: $(VENV)/installed
	KERAS_BACKEND=$* $(BIN)/python -m pytest -m "$(EACH)"

# Of PyTorch, the build for CPUs if pip knows a place that has it, and PyPI's with CUDA otherwise.
$(VENV)/installed: $(patsubst %,locks/%.txt,build torch-cpu torch all) pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(LOCKED) --requirement locks/build.txt
	$(BIN)/python $(LOCKED) --requirement locks/torch-cpu.txt 2>/dev/null || \
		$(BIN)/python $(LOCKED) --requirement locks/torch.txt
	$(BIN)/python $(LOCKED) --requirement locks/all.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(TOOLS)/installed: locks/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(LOCKED) --requirement locks/tools.txt
	touch $@

# Such as `make lock UV="--upgrade-package pillow"`.
lock: $(TOOLS)/installed
	PATH=$(CURDIR)/$(TOOLS)/bin:$$PATH $(TOOLS)/bin/python -m tools.lock $(UV)

audit: $(TOOLS)/installed
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner=off \
		$(patsubst %,--requirement=locks/%.txt,all torch build tools)

sbom: $(VENV)/installed $(TOOLS)/installed
	$(TOOLS)/bin/python -m tools.sbom

clean:
	rm -rf $(VENV) $(TOOLS) runs site
