# Only Python (3.11 to 3.14) and make are needed; everything else goes into .venv.
#
#   make lab         open the notebooks in JupyterLab           JUPYTER_FLAGS="--no-browser --port 8899"
#   make test        all tests and all notebooks, compared      PYTEST_FLAGS="-k collator"
#   make notebooks   run every notebook again and save it       NOTEBOOKS=notebooks/01_quickstart.ipynb
#   make lint        ruff (also on the notebooks) and mypy
#   make site        the course and the package's pages as a web site, in build/site
#   make colab       the package and the course on a bare machine, such as Colab's; the pages call it there
#   make clean       remove .venv and the prepared corpus
#
# PYTHON=/path/to/python chooses the interpreter, PIP_FLAGS="--index-url ..." where packages come from: torch from PyPI
# brings CUDA libraries to Linux, which double the 3 GB that .venv needs.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help lab test notebooks lint site colab clean corpus

BIN := .venv/bin
NOTEBOOKS ?= $(wildcard notebooks/*.ipynb)
MEGABYTES := 3000

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

lab: .venv/installed-lab corpus
	@$(BIN)/python -m jupyter trust notebooks/*.ipynb >/dev/null # so that the figures that move do so before they are run
	cd notebooks && exec ../$(BIN)/python -m jupyter lab $(JUPYTER_FLAGS)

# Two processes take one test file or notebook after another, the longest first, and each computes with one thread.
# In one process: PYTEST_FLAGS="-n 0".
test: .venv/installed-test corpus
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval --nbval-current-env -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

notebooks: .venv/installed-test corpus
	PYTHONPATH=notebooks $(BIN)/python -m course.folds $(NOTEBOOKS)

lint: .venv/installed-test
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check --quiet
	$(BIN)/python -m mypy

site: .venv/installed-site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -c docs . build/site
	@echo "build/site/index.html"

# This folder is then a clone inside the one that the machine shows its user, who finds the course's folders beside it.
colab:
	pip install -q '.[lab]'
	cd .. && ln -s $(notdir $(CURDIR))/notebooks/[a-z]* .

corpus: | .venv/installed-lab
	@cd notebooks && ../$(BIN)/python -m nanoset_ref.chunks.corpus data && ../$(BIN)/python -c "import course; course.tiny_corpus()"

clean:
	rm -rf .venv notebooks/data build docs/generated

# The stamps make the second call quick: pip runs again only when what it was told has changed. `test` holds all of `lab`.
.venv/installed-test: EXTRAS := lab,test
.venv/installed-lab: EXTRAS := lab
.venv/installed-site: EXTRAS := lab,site
.venv/installed-test .venv/installed-lab .venv/installed-site: pyproject.toml constraints.txt
	@set -e; \
	stop() { printf '\nmake: %s\n' "$$@" >&2; exit 1; }; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python); do \
			found=`"$$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null` || continue; \
			case $$found in 3.11|3.12|3.13|3.14) python=$$candidate; break;; esac; \
			seen="$$seen $$candidate is $$found,"; \
		done; \
		test -n "$$python" || stop "Python 3.11, 3.12, 3.13 or 3.14 is needed;$${seen:- no Python was found,} none of them will do.\
 Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; \
		"$$python" -c 'import venv, ensurepip' 2>/dev/null || stop "$$python has no venv module.\
 On Debian and Ubuntu: apt install python3-venv. Or name another: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; \
		free=`df -Pk . | awk 'NR == 2 {print int($$4 / 1024)}'`; \
		test "$$free" -ge $(MEGABYTES) || stop "only $$free MB of disk are free here; .venv needs about $(MEGABYTES) MB."; \
		echo "Making .venv with $$python ($$found); what follows takes a few minutes, once."; \
		"$$python" -m venv .venv || stop "$$python could not make .venv; its words stand above."; \
	fi; \
	rm -f .venv/pip.log; \
	$(BIN)/python -m pip install --log .venv/pip.log --disable-pip-version-check $(PIP_FLAGS) \
		--constraint constraints.txt --editable '.[$(EXTRAS)]' || { \
		if grep -q 'No space left on device' .venv/pip.log; then \
			stop "the disk is full; .venv (and TMPDIR, for a while) need about $(MEGABYTES) MB."; \
		elif grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|Connection refused|ProxyError' .venv/pip.log; then \
			stop "the package index cannot be reached: no network, or a proxy is needed (pip reads HTTPS_PROXY and PIP_INDEX_URL)."; \
		else \
			stop "pip could not install what constraints.txt pins; its words stand above, and in full in .venv/pip.log."; \
		fi; }; \
	touch .venv/installed-lab; \
	touch $@
