# What can be done with kbroker. Everything a target needs is installed into .venv on first use; a target
# that was interrupted can simply be run again.

VENV ?= .venv
PY := $(VENV)/bin/python
PORT ?= 9092
ARGS ?=
ONLY ?= compat_tests
PART ?= 1/1
SEEDS ?= 200

# Any CPython from 3.11 on; the versions in the order in which they are measured most. Of one version, a build with the
# compiler's profile-guided optimizations (as all distributions' are) comes first: kbroker does a quarter less in others.
PROBE := import sys, sysconfig, venv, ensurepip; assert sys.version_info >= (3, 11); \
	print(sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	for optimized in True False; do \
		for candidate in $$(which -a $$name 2>/dev/null) $(HOME)/.pyenv/versions/3.1[1-9]*/bin/$$name; do \
			if [ "$$("$$candidate" -c '$(PROBE)' 2>/dev/null)" = $$optimized ]; then echo "$$candidate"; exit; fi; \
		done; \
	done; \
done)

.DEFAULT_GOAL := help
.PHONY: help run console test test-newest steady gate everything soak damage check format demo bench compat compat-kafka compat-spark works-with kafka docs site dist clean

help: ## Show what there is
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- Environments: a stamp for each set of packages -------------------------------------------------------------

$(VENV)/.created:
	@echo "making $(VENV), with all that is needed; once" >&2
	@if [ -z "$(PYTHON)" ]; then \
		echo "kbroker needs Python 3.11 or newer with venv and pip (set PYTHON=... if it is not on the PATH)" >&2; \
		exit 1; fi
	"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.created pyproject.toml constraints.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@$(PY) -m compileall -q kbroker
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(GSSAPI)
	@touch $@

$(VENV)/.spark: $(VENV)/.dev
	@echo "installing Spark into $(VENV), which is some 500 MB and done once" >&2
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,spark,browser]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

$(VENV)/.site: $(VENV)/.dev
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

# Kerberos is compiled, so it is there only where the machine has what that needs; its tests skip elsewhere.
GSSAPI = if command -v krb5-config >/dev/null 2>&1; then \
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gssapi]' \
		|| echo "gssapi cannot be built; tests of Kerberos are skipped"; fi

# --- Use --------------------------------------------------------------------------------------------------------

run: $(VENV)/.core ## Start a development node on 127.0.0.1:9092 (PORT=..., ARGS='-o name=value')
	@echo "In another terminal: $(VENV)/bin/kbroker produce hello, and $(VENV)/bin/kbroker consume hello --from start -f"
	@exec $(VENV)/bin/kbroker start --port $(PORT) $(ARGS)

demo: $(VENV)/.spark ## Flights of 2013 through kbroker into Spark, live, compared with the source data
	$(PY) -m spark_examples.demo $(ARGS)

console: $(VENV)/.spark ## A living cluster with Spark reading from it, and its console on 127.0.0.1:8080
	$(PY) -m spark_examples.living $(ARGS)

# --- Tests ------------------------------------------------------------------------------------------------------

# Tests of nodes wait most of their time, so there are more workers than processors.
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN | awk '{print 3 * $$1}')
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev ## The tests of kbroker itself (ARGS='-k name', ONLY=tests/log, CHANGED=1: what depends on your change)
ifdef CHANGED
	@paths=$$($(PY) -m tests.gate.changed) && if [ -n "$$paths" ]; then $(PY) -m pytest $$paths $(SIDE_BY_SIDE) $(ARGS); fi
else ifeq ($(origin ONLY),file)
	@echo "all tests of kbroker, with $(WORKERS) at a time: some 5 minutes on two processors"
	$(PY) -m pytest tests -m 'not spark and not kafka and not everything' $(SIDE_BY_SIDE) $(ARGS)
else
	$(PY) -m pytest $(ONLY) $(ARGS)
endif

steady: $(VENV)/.dev ## Your new and changed tests, three times beside a load
	@$(PY) -m tests.gate.steady $(ARGS)

test-newest: ## The same tests on the newest Python that this machine has of those that kbroker is said to run on
	@python=$$(for version in 3.14 3.13 3.12; do \
		for candidate in python$$version $(HOME)/.pyenv/versions/$$version*/bin/python; do \
			if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' $$version \
				>/dev/null 2>&1; then echo "$$candidate"; exit; fi; \
		done; \
	done); \
	if [ -z "$$python" ]; then echo "skipped: no Python 3.12 or newer on this machine"; \
	else $(MAKE) --no-print-directory test PYTHON="$$python" \
		VENV=.cache/venv-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); fi

gate: $(VENV)/.dev ## What a change must pass, as .ci/run does; what failed is run again, alone (ARGS='--only nodes')
	$(PY) -m tests.gate first $(ARGS)

everything: $(VENV)/.dev ## All tests that there are, with a table of what was skipped and why (PART=2/3 for one of three machines)
	$(PY) -m tests.gate everything --part $(PART) $(ARGS)

soak: $(VENV)/.dev ## Clusters, quorums, transactions and logs with many seeds, kills and full disks (SEEDS=200)
	KBROKER_SIM_SEEDS=$(SEEDS)0 KBROKER_SIM_CLUSTER_SEEDS=$(SEEDS) KBROKER_TRANSACTION_SEEDS=$(SEEDS)00 \
		$(PY) -m pytest tests/sim tests/transactions/test_delayed_requests.py $(ARGS)
	KBROKER_LOG_EXAMPLES=$(SEEDS)000 KBROKER_LOG_FLIPS=$(SEEDS)00 KBROKER_KILLS=$(SEEDS) KBROKER_FULL_DISKS=$(SEEDS) \
		KBROKER_FOOLISH_ROUNDS=1 $(PY) -m pytest tests/log tests/node/test_kill_9.py tests/node/test_full_disk.py \
		tests/node/test_foolish_clients.py $(ARGS)
	KBROKER_EXAMPLES=$(SEEDS)00 $(PY) -m pytest tests -m hypothesis $(ARGS)
	KBROKER_SASL_FRAMES=$(SEEDS)0000 $(PY) -m pytest tests/node/test_sasl_hostile.py tests/node/test_gssapi.py $(ARGS)

damage: $(VENV)/.dev ## Damage files of one node and of three, start again, read all (ARGS='--tries 2000', '--against kafka', '--seed 17')
	$(PY) -m compat_tests.damage $(ARGS)

check: $(VENV)/.dev ## Lint, types, layers
	@failed=; for tool in "ruff check ." "ruff format --check --quiet ." mypy "lint-imports --no-logo"; do \
		echo "$$tool"; $(VENV)/bin/$$tool || failed="$$failed $${tool%% *}"; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

format: $(VENV)/.dev ## Lay out the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

compat: $(VENV)/.spark ## Stock clients and Kafka's own tools against kbroker, one node and three (ONLY=compat_tests/kcat)
	$(PY) -m pytest $(ONLY) $(ARGS)

compat-kafka: $(VENV)/.spark ## The same cases against Apache Kafka, which shows that they are right
	$(PY) -m pytest $(ONLY) --broker apache $(ARGS)

compat-spark: $(VENV)/.spark ## All of Spark's tests, on kbroker and on Apache Kafka, three releases of Spark, in one run
	$(PY) -m pytest compat_tests/spark --broker both --older-spark $(ARGS)

works-with: $(VENV)/.dev ## Programs around Kafka by a recipe each, installed on first use (ONLY=compat_tests/works_with/faust)
	$(PY) -m pytest $(if $(filter file,$(origin ONLY)),compat_tests/works_with,$(ONLY)) --works-with $(ARGS)

kafka: $(VENV)/.dev ## Fetch Apache Kafka, its tools and Spark's connector into .cache, for the tests that ask them (needs Maven)
	@$(PY) -c "from compat_tests.apache_kafka import SERVER_VERSION, kafka_home; print(kafka_home(), kafka_home(SERVER_VERSION))"
	@$(PY) -m compat_tests.class_archive || echo "no archives of classes: JVMs start slower"
	@$(PY) -m kbroker.testing.spark

bench: $(VENV)/.bench ## kbroker and Apache Kafka side by side (ARGS=--quick)
	@$(PY) -m compileall -q kbroker  # as an installed package is: start-up is measured too
	$(PY) -m benchmarks $(ARGS)

# --- The rest ---------------------------------------------------------------------------------------------------

docs: $(VENV)/.dev ## Write the generated pages of docs/
	$(PY) -m docs.generate

site: $(VENV)/.site ## Build the documentation site into out/site; a broken link is an error
	$(PY) -m sphinx -q -E -W --keep-going -n -b html -c docs . out/site
	@echo "out/site/index.html"

dist: $(VENV)/.dev ## Build wheel and source archive into dist/, and try them in each Python that there is (ARGS=--newest)
	@rm -rf dist
	$(PY) -m pip install --quiet --disable-pip-version-check build
	$(PY) -m build
	$(PY) -m tests.gate.dist $(ARGS)

clean: ## Remove the environments and what was built
	rm -rf $(VENV) build dist out .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
