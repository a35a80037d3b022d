# Entry points. `make demo` shows what this is, `make test` is all that a change has to pass.
PYTHON ?= python3
DEMO_VENV := .venv
CHROOT_TEST := tests/slurm/pyslurm_offlabel.sh

.PHONY: help demo node test corpus-expect bench bench-node cluster test-slurm-next test-pyslurm clean

help:
	@echo 'make demo          install into $(DEMO_VENV), run the whole chain on example records, write report.html'
	@echo 'make test          everything a change has to pass (as root: with real databases, Slurm and a browser)'
	@echo 'make node          the node side in one file, dist/slurm-trace-node.pyz; PYTHON: that of the nodes'
	@echo 'make corpus-expect write the expected routes of the boundary corpus anew, after a change that is meant'
	@echo 'make bench         import and ranking of up to a million runs, beside slurm2sql; hooks and sampler'
	@echo 'make bench-node    hooks beside /bin/true, the sampler beside pynvml, nvitop and gpucm'
	@echo 'make cluster       a Slurm with four nodes of eight fake GPUs and the hooks, until Ctrl-C (root)'
	@echo 'make test-slurm-next  the tests of a whole Slurm on 24.11 and 26.05, in chroots (root; builds them once)'
	@echo 'make test-pyslurm  pyslurm against Slurm 26.05 in a chroot (root; builds software; off label)'
	@echo 'make clean         remove what the targets above left here'

demo: $(DEMO_VENV)/bin/slurm-trace
	$(DEMO_VENV)/bin/slurm-trace demo --output report.html

# A build folder from an earlier version would bring deleted modules back into the wheel.
$(DEMO_VENV)/bin/slurm-trace: setup.cfg pyproject.toml $(shell find slurm_trace analysis schema prolog_epilog examples -type f -not -path '*/__pycache__/*')
	$(PYTHON) -m venv $(DEMO_VENV)
	rm -rf build
	$(DEMO_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	$(DEMO_VENV)/bin/pip install --quiet --disable-pip-version-check .
	rm -rf build
	touch $@

node:
	$(PYTHON) prolog_epilog/zipapp_node.py dist/slurm-trace-node.pyz

test:
	PYTHON='$(PYTHON)' sh tests/run.sh

corpus-expect: $(DEMO_VENV)/bin/slurm-trace
	PYTHONPATH=tests $(DEMO_VENV)/bin/python -P -m support.write_corpus

bench: $(DEMO_VENV)/bin/slurm-trace
	missed=0; $(DEMO_VENV)/bin/python -P bench/hooks.py || missed=1; \
	$(DEMO_VENV)/bin/python -P bench/node.py || missed=1; \
	$(DEMO_VENV)/bin/python -P bench/run.py $(BENCH) || missed=1; exit $$missed

bench-node: $(DEMO_VENV)/bin/slurm-trace
	missed=0; $(DEMO_VENV)/bin/python -P bench/hooks.py || missed=1; \
	$(DEMO_VENV)/bin/python -P bench/node.py || missed=1; exit $$missed

cluster: $(DEMO_VENV)/bin/slurm-trace
	PYTHONPATH=tests $(DEMO_VENV)/bin/python -P -m support.cluster_by_hand

test-slurm-next:
	bash tests/slurm/cluster_next.sh

test-pyslurm:
	bash $(CHROOT_TEST)

clean:
	rm -rf .venv .venv-test .cache build dist ./*.egg-info report.html .mypy_cache .pytest_cache .ruff_cache .hypothesis
