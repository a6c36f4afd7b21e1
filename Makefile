# Everything a developer needs: make demo | demo-server | test | quick | lint | bench | soak
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Hundreds of programs are started from these sources: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
# Where it is set, pytest prints differences of any length, and which tests failed is lost in them.
unexport CI BUILD_NUMBER

.PHONY: demo demo-server test quick lint bench soak clean parts

demo: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

# A team's server, two nodes, two members and a job, on this machine; as root.
demo-server: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo-server.sh

# The whole suite, against real parts, most of which wait most of the time; fails when a part cannot be started.
test: $(READY) parts lint
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# The inner loop: everything that needs no real part.
quick: $(READY)
	$(BIN)/python -m pytest -m "not real and not slow" --hypothesis-profile=quick -x -q \
		-n 2 --dist worksteal -p no:schemathesis -p no:hydra_pytest -p no:anyio

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini

# make bench ONLY=batch REPEAT=10
bench: $(READY)
	@bash .ci/parts bench
	$(BIN)/python -m pip install -q --group bench
	$(BIN)/python bench/run.py $(ONLY) $(if $(REPEAT),--repeat $(REPEAT))

# Proof by repetition: jobs run while whatever runs them is killed. make soak MINUTES=180, or KILLS=2000
soak: $(READY) parts
	cd tests && ../$(BIN)/python -m soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

# Real parts the tests need: sshd, ip, git, zsh, fish, a Slurm and a Grid Engine; through apt when root.
parts:
	@bash .ci/parts

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q -e . --group dev
	@touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
