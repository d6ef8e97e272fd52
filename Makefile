# The commands of this repository. HACKING.md says what each is for.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PLIMSOLL := $(TARGET_DIR)/release/plimsoll

# Arguments for the command itself, as in `make study STUDY_ARGS=--help`.
STUDY_ARGS ?=
BENCH_ARGS ?=

# rustup puts cargo there, also for a shell that was opened before it did.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# Cases of each property that a run tries by chance, where its test names no number.
export PROPTEST_CASES ?= 64
check: export PROPTEST_CASES := 512

.NOTPARALLEL:
.PHONY: help study fabric profile slurm offcodes aarch64 test check bless lint bench format clippy engine-alone tests doctests matrices loom fuzz soak tools book install uninstall deb rpm licences

help:
	@echo 'make study   find where message processing should run on this machine'
	@echo 'make fabric  the command and the libfabric provider: then plimsoll mpirun -n 2 -- PROGRAM'
	@echo 'make profile the command and the library that records: then plimsoll profile -- mpirun -n 2 PROGRAM'
	@echo 'make slurm   the plugin by which every MPI program of a Slurm leaves a summary (docs/centre.md)'
	@echo 'make offcodes the program behind plimsoll plan, run, ps, stop, migrate, upgrade, offcode, odf, agent and traffic'
	@echo 'make install the commands, their libraries, manual pages and completions in PREFIX (/usr/local); make uninstall'
	@echo 'make deb     the same as a Debian package; make rpm: as an RPM'
	@echo 'make licences  the licences of all crates that are linked, and an SBOM (CycloneDX); fails at one that is not allowed'
	@echo 'make test    whether everything works here: tests, and every command once on its real part; ends with totals'
	@echo 'make check   what a change must pass: make test, then lint, the engine on its own, loom, the book, all matrices, Arm'
	@echo 'make book    the pages of docs/ as a site in target/book'
	@echo 'make bless   take the present output as the golden one; review it with git diff'
	@echo 'make lint    formatting and clippy, warnings denied'
	@echo 'make aarch64 the agent for Arm cores, built and tested under qemu-user'
	@echo 'make fuzz    every fuzz target for a minute (FUZZ_ARGS="SECONDS TARGET...")'
	@echo 'make soak    the long tests before a release: 10^9 simulated messages, 10^6 connections (SOAK_ARGS=--help)'
	@echo 'make bench   the ratios that the engine is held to, measured in one run'

# What each target adds is built beside what is there: all ask for the same features (crates/manual/tests/features.rs).
BUILD = CARGO='$(CARGO)' scripts/build build --release --package plimsoll

study:
	@scripts/bootstrap study
	@$(BUILD)
	$(PLIMSOLL) study $(STUDY_ARGS)

# libfabric takes files named *-fi.so for providers; cargo has no hyphen in the name of a library.
fabric:
	@scripts/bootstrap study
	@$(BUILD) --package fabric
	@ln -sf libplimsoll_fi.so $(TARGET_DIR)/release/libplimsoll-fi.so
	@echo 'now: $(PLIMSOLL) mpirun -n 2 -- PROGRAM'

profile:
	@scripts/bootstrap study
	@$(BUILD) --package mpi-profile
	@echo 'now: $(PLIMSOLL) profile -- mpirun -n 2 PROGRAM'

# Against the headers of the Slurm that is to load it: the plugin is no part of the package.
slurm: profile
	@test -e /usr/include/slurm/spank.h || { echo 'make slurm: no slurm/spank.h: apt-get install libslurm-dev' >&2; exit 1; }
	@$(or $(CC),cc) -shared -fPIC -O2 -Wall -Wextra -o $(TARGET_DIR)/release/plimsoll-spank.so crates/fleet/slurm/plimsoll.c
	@echo 'now: docs/centre.md, with $(TARGET_DIR)/release/plimsoll-spank.so'

offcodes:
	@scripts/bootstrap study
	@$(BUILD) --package plimsoll-offcode
	@echo 'now: $(PLIMSOLL) plan APP.toml, or $(PLIMSOLL) traffic'

# What runs on Arm cores, such as a DPU's: the agent is built and started, and the tests of what offcodes consist of run, under
# qemu-user. It compiles everything once more.
ARM = aarch64-unknown-linux-gnu
ARM_TESTS = --package offcode --package wasm
# QEMU keeps some bytes for each page that was ever reserved, and each body of wasm reserves 4 GiB: -R bounds the addresses to 64 GiB, which are used again.
QEMU = qemu-aarch64 -R 0x1000000000 -L /usr/aarch64-linux-gnu
aarch64: export CC_aarch64_unknown_linux_gnu = aarch64-linux-gnu-gcc
aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
# QEMU before 8.1 hangs at times where a program with threads starts another one, as GLib's slices do not survive a fork (QEMU's issue 285).
aarch64: export G_SLICE = always-malloc
aarch64: tools
	@scripts/bootstrap aarch64
	@$(CARGO) build --target $(ARM) --package plimsoll-offcode
	$(QEMU) $(TARGET_DIR)/$(ARM)/debug/plimsoll-offcode agent --help >/dev/null
	@$(SUITE) programs --under '$(QEMU)' $(CARGO) test --target $(ARM) $(ARM_TESTS) --tests

# Where `make install` puts it; DESTDIR goes before, for packagers.
PREFIX ?= /usr/local
DESTDIR ?=
SHIPPED = --package plimsoll-offcode --package fabric --package mpi-profile --package manual

install:
	@scripts/bootstrap study
	@$(BUILD) $(SHIPPED)
	@scripts/licences '$(TARGET_DIR)/release'
	@scripts/install-tree '$(TARGET_DIR)/release' '$(PREFIX)' '$(DESTDIR)'
	@echo 'now: $(PREFIX)/bin/plimsoll mpirun -n 2 PROGRAM, and $(PREFIX)/bin/plimsoll doctor'

uninstall:
	@scripts/install-tree --remove '$(PREFIX)' '$(DESTDIR)'

deb rpm:
	@scripts/bootstrap study
	@CARGO='$(CARGO)' scripts/build build --profile dist --package plimsoll $(SHIPPED)
	@scripts/licences '$(TARGET_DIR)/dist'
	@scripts/$@ '$(TARGET_DIR)/dist'

licences:
	@mkdir -p '$(TARGET_DIR)'
	@scripts/licences '$(TARGET_DIR)'
	@echo 'now: $(TARGET_DIR)/LICENCES and $(TARGET_DIR)/plimsoll.cdx.json'

# Every part runs, also after one that fails, and the account of all of them comes last (crates/suite).
SUITE = $(TARGET_DIR)/debug/suite
TESTS = INSTA_UPDATE=no $(SUITE) programs $(TIER) $(CARGO) test --workspace --tests
test: tools
	@$(SUITE) parts '$(MAKE)' tests doctests

check: tools
	@$(SUITE) parts '$(MAKE)' test format clippy engine-alone loom book matrices aarch64

lint: tools format clippy

# Guests of the sandbox are built by tests that fetch nothing.
tools:
	@scripts/bootstrap test
	@CARGO='$(CARGO)' scripts/build fetch --quiet --locked --target wasm32-unknown-unknown
	@$(CARGO) build --quiet --package suite

# INSTA_UPDATE=no: a golden output that differs fails and leaves no file behind.
tests: tools
	@$(TESTS)

# Tests that are marked `#[ignore = "make check"]`. What is not fetched is left out and said.
CENTRE_TOOLS = $(abspath $(TARGET_DIR))/centre-tools
matrices: TIER = --ignored
matrices: export PATH := $(CENTRE_TOOLS)/bin:$(PATH)
matrices: tools
	@scripts/centre-tools '$(CENTRE_TOOLS)' >/dev/null || :
	@$(TESTS)

doctests: tools
	@$(SUITE) command $(CARGO) test --workspace --doc --quiet

format:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# The engine has no clock, socket, thread or file: it builds where there are none.
engine-alone:
	$(CARGO) build --package engine --target wasm32-unknown-unknown

# Every interleaving of the shared-memory rings, in the modules named `models`. A build of its own, since the flag
# reaches every crate. They run alone: the crate's other tests cannot run on loom's atomics. That there are any is
# checked first.
LOOM = env RUSTFLAGS='--cfg loom' $(CARGO) test --release --package ports --lib --target-dir $(TARGET_DIR)/loom models
loom: tools
	@$(LOOM) -- --list | grep ': test$$' > /dev/null || { echo 'loom: no model was found' >&2; exit 1; }
	@$(SUITE) command $(LOOM)

# The pages of docs/ as a site; a warning is a failure. crates/manual/tests/links.rs finds dead links.
MDBOOK = 0.5.4
book:
	@$(CARGO) install --quiet --debug --locked --no-default-features --root '$(TARGET_DIR)/tools' --version $(MDBOOK) mdbook
	@said=$$('$(TARGET_DIR)/tools/bin/mdbook' build docs --dest-dir '$(abspath $(TARGET_DIR)/book)' 2>&1) \
	&& ! echo "$$said" | grep -qE 'WARN|ERROR' || { echo "$$said" >&2; exit 1; }
	@echo 'now: $(TARGET_DIR)/book/index.html'

# No part of `make check`: it takes a nightly compiler and a minute a target.
FUZZ_ARGS ?=
fuzz:
	@scripts/bootstrap fuzz
	@scripts/fuzz $(FUZZ_ARGS)

# No part of `make check`: it takes hours.
SOAK_ARGS ?=
soak:
	@scripts/soak $(SOAK_ARGS)

bless: tools
	BLESS=1 INSTA_UPDATE=always $(CARGO) test --workspace --tests
	BLESS=1 $(CARGO) test --workspace --test main -- --ignored other_pages_read_as_they_did the_papers_testbeds_are_mapped
	@git status --short

# Ratios are over the first stack named: 1 or more is what the engine is held to.
NETPIPE = $(shell command -v mpirun >/dev/null && command -v NPopenmpi >/dev/null && echo open-mpi,)
BENCH = $(PLIMSOLL) bench sweep $(BENCH_ARGS)
bench: fabric profile offcodes
	$(CARGO) bench --package ports --bench shm
	$(CARGO) bench --package endpoint --bench endpoint
	$(CARGO) bench --package engine --bench matching
	$(CARGO) bench --package ports --bench channel
	$(CARGO) bench --package ports --bench call
	$(CARGO) bench --package wasm --bench bodies
	$(CARGO) bench --package placement --bench against_highs
	@[ -n '$(NETPIPE)' ] || echo 'open-mpi left out: install openmpi-bin and netpipe-openmpi'
	$(BENCH) --stack $(NETPIPE)engine-shm --pattern ping-pong --sizes 8,4KiB,1MiB
	$(BENCH) --stack $(NETPIPE)engine-shm --pattern stream --sizes 1MiB
	$(BENCH) --stack $(NETPIPE)engine-shm --pattern message-rate --sizes 8
	@if [ "$$(id -u)" = 0 ]; then $(BENCH) --path lab --stack tcp,engine-udp --pattern ping-pong --sizes 8; \
	else echo 'engine-udp against tcp left out: the lab needs root (sudo make bench)'; fi
	@if command -v mpicc.openmpi >/dev/null; then $(PLIMSOLL) bench mpi --targets; \
	else echo 'MPI over the fabric left out: install openmpi-bin and libopenmpi-dev'; fi
	@if command -v valgrind >/dev/null && command -v mpicc.openmpi >/dev/null; then scripts/count-instructions; \
	else echo 'the instructions of a message left out: install valgrind, openmpi-bin and libopenmpi-dev'; fi
	@if command -v mpicc.openmpi >/dev/null || command -v mpicc.mpich >/dev/null; then $(PLIMSOLL) bench profiler; \
	else echo 'the cost of profiling left out: install libopenmpi-dev or libmpich-dev'; fi
	@if [ "$$(id -u)" = 0 ]; then $(PLIMSOLL) traffic --paper; \
	else echo 'the traffic generator left out: the lab needs root (sudo make bench)'; fi
