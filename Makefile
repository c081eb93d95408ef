# Everything a newcomer runs. `make run` and `make test` need Python 3.11 (or 3.12), git and make.

# The interpreter that makes the virtual environment.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV ?= .venv
# An extra package index for torch, for example PyTorch's own CPU index: make run TORCH_INDEX=...
TORCH_INDEX ?=
# A set of parameters in profiles/, laid over params.yaml: make run PROFILE=paper
PROFILE ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FLOWS := $(BIN)/python -m flows

.PHONY: run test soak fuzz real bench peers published spread variants screenshots report check docs ui up clean install
.DEFAULT_GOAL := run

run: $(INSTALLED)
	@$(FLOWS) run $(PROFILE)

# A thread for each of the two processes: threads that wait for others keep the cores busy.
test: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(FLOWS) exec python -m pytest tests -m "not soak" --numprocesses 2 --dist loadfile --no-loadscope-reorder

# What takes minutes: faults, power cuts, the whole pipeline in copies, two at a time.
soak: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(FLOWS) exec python -m pytest tests -m soak --numprocesses 2 --dist loadfile

# Ten million random inputs, shared out over parsers of text that models or users write; what breaks a promise is kept.
fuzz: $(INSTALLED)
	@$(FLOWS) exec python tests/fuzz/run.py

# docs/real-text.md and docs/recorded-runs.md, from the recorded data in the folder that SELVERIFY_DATA names.
real: $(INSTALLED)
	@$(FLOWS) exec python tests/real/report.py

# docs/performance.md: figures of this machine, with nothing else running; an hour, ONLY=one section,
# or DEVICE=cuda for the section of an accelerator.
bench: $(INSTALLED)
	@$(FLOWS) exec python tests/bench/report.py $(if $(ONLY),--only $(ONLY)) $(if $(DEVICE),--device $(DEVICE))

# its_hub's searches with the generator and the verifier of PROFILE=smollm2: pip install its_hub==1.2.0 first.
peers: $(INSTALLED)
	@$(FLOWS) exec python tests/peers.py --policy models/smollm2-strong

# The published pages whose rows are in docs/results, computed again from these; numbers in sentences beside the tables.
published: $(INSTALLED)
	@$(FLOWS) published

# How far a default run's accuracy and gain move when all is trained again with other seeds: five runs.
spread: $(INSTALLED)
	@$(FLOWS) exec python tests/spread.py

# The tables of docs/results-paper.md beside PROFILE=paper, which has to be the last run; ONLY=parts, grid or shares.
variants: $(INSTALLED)
	@$(FLOWS) exec python tests/variants.py $(if $(ONLY),--only $(ONLY))

# The pictures of the documentation from the run that is here: pip install -e '.[browser]' first, and Chromium.
screenshots: $(INSTALLED)
	@$(FLOWS) exec python tests/screenshots.py

# docs/report.md as a PDF: pip install -e '.[browser]' first, and Chromium.
report: $(INSTALLED)
	@$(FLOWS) exec python tests/report_pdf.py

check: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# The documentation as a site, in site/; dead links are errors.
docs: $(INSTALLED)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

ui: $(INSTALLED)
	@$(FLOWS) ui

# The same, and a worker for what prefect.yaml schedules.
up: $(INSTALLED)
	@$(FLOWS) up

clean: $(INSTALLED)
	@$(FLOWS) clean

install: $(INSTALLED)

# The import at the end is the check that pip's own cannot do: with other versions of FastAPI the
# packages agree and Prefect's server still does not start.
$(INSTALLED): constraints.txt pyproject.toml
	@echo "Installing into $(VENV): 3 GB (more with CUDA), two minutes or more ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) \
		--constraint constraints.txt --editable '.[pipeline,servers,smollm2,dask,dev]'
	@$(FLOWS) exec python -c 'import prefect.server.api.server'
	@$(FLOWS) setup
	@touch $@
