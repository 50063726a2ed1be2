# Every command of the project; `make help` lists them.
#
#   CLANG=clang-19        the BPF compiler (default: clang, else the newest clang-NN)
#   PREFIX=/usr/local     where `make install` puts things; DESTDIR is honoured

CARGO   ?= cargo
PREFIX  ?= /usr/local
export CARGO CLANG

# An empty CLANG would reach bpf/build.rs as a compiler with no name.
ifeq ($(strip $(CLANG)),)
unexport CLANG
endif

TOOLS    := $(filter-out usekit,$(shell sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p;}' tools/Cargo.toml tools/flame/Cargo.toml))
RELEASE  := $(or $(CARGO_TARGET_DIR),target)/release
SCRIPTS  := .ci/run demo/run fuzz/run $(addprefix man/,record with-postgres with-quota) $(addprefix setup/,as-root austin cross deps dist glibc go inferno install packages py-spy python speedscope unpacked userland wheel) tests/run tests/truth \
            $(addprefix tests/kernels/,boot features fetch guest image passed programs run scenarios table)

.DEFAULT_GOAL := help
.PHONY: help demo build test kernels smoke truth mutants soak refusals check fuzz bench bench-files examples overload dist dist-test cross install docs clean deps deps-test deps-kernels deps-bench

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: build ## build, trace a small program with each tool, show and explain the results
	demo/run $(RELEASE)

build: deps ## release build of the tools and of the demo's program
	$(CARGO) build --release --locked -p usekit-tools -p usekit-flame -p usekit-workloads

test: deps-test ## every test; the live ones need root (sudo is used, or they are skipped aloud)
	tests/run

kernels: deps-kernels dist ## the tests on Debian's kernels from 5.10 on, in QEMU (K=6.1: that one; K="--brief 5.10": in brief; MACHINE=aarch64: arm64's)
	tests/kernels/run $(K)

smoke: deps-kernels ## some of these on one of Debian's kernels for arm64, in an emulated machine
	$(MAKE) --no-print-directory dist MACHINE=aarch64
	MACHINE=aarch64 tests/kernels/run --smoke

check: deps docs ## formatting, clippy, documentation and scripts, warnings refused
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@if command -v shellcheck >/dev/null; then shellcheck -S warning $(SCRIPTS); \
	else echo 'shellcheck is not installed: scripts not checked'; fi
	@if test -f .clang-format && command -v clang-format >/dev/null; \
	then find bpf -name '*.bpf.[ch]' -exec clang-format --dry-run -Werror {} +; \
	else echo 'clang-format is not set up: BPF sources not checked'; fi

truth: deps-test deps-bench ## what is statistical, by a sequential test of each; a ledger of every run (TRUTH='budget profile'); all else that takes long
	tests/truth $(TRUTH)
	$(if $(TRUTH),,$(MAKE) --no-print-directory overload OVERLOAD='--runs 1 --most 2')
	$(if $(TRUTH),,$(MAKE) --no-print-directory soak refusals kernels dist-test fuzz)

mutants: deps-test ## break the accounting, one mistake at a time: which tests notice (MUTANTS='--count 50 --only bpf/runqlat/runqlat.bpf.c --no-live')
	$(CARGO) build --locked -p usekit-mutants
	$(if $(findstring --no-live,$(MUTANTS)),,setup/as-root) $(or $(CARGO_TARGET_DIR),target)/debug/usekit-mutants --target $(or $(CARGO_TARGET_DIR),target) $(MUTANTS)

SOAK_SECONDS ?= 10
soak: deps-test ## the heaviest loads, SOAK_SECONDS=10 times as long as in the tests; what they cost is printed
	$(CARGO) build --locked -p usekit-workloads -p usekit-tools
	SOAK_SECONDS=$(SOAK_SECONDS) REQUIRE_LIVE=1 $(CARGO) test --locked -p usekit-tools --test live \
	    --config 'target."cfg(unix)".runner = "setup/as-root"' -- soak --nocapture --test-threads 1

refusals: deps-test ## every system call of every tool refused, with every error; prints all that they say: half an hour
	$(CARGO) build --locked -p usekit-workloads -p usekit-tools
	REFUSALS=all REQUIRE_LIVE=1 $(CARGO) test --locked -p usekit-tools --test live \
	    --config 'target."cfg(unix)".runner = "setup/as-root"' -- refused:: --nocapture

bench: build deps-bench ## what the tools cost and how right they are, beside others' (BENCH='--rounds 3 --only runqlat')
	$(CARGO) build --release --locked -p usekit-bench
	setup/as-root $(RELEASE)/usekit-bench --ours-dir $(RELEASE) --py-spy "$$(setup/py-spy $(dir $(RELEASE))py-spy || echo py-spy)" $(BENCH)
	$(MAKE) --no-print-directory bench-files

bench-files: deps-bench ## how fast flame reads and draws, beside inferno and pprof (BENCH_FILES='--megabytes 1000')
	$(CARGO) build --release --locked -p usekit-flame -p usekit-bench
	$(RELEASE)/usekit-bench-files --ours-dir $(RELEASE) --inferno-dir "$$(setup/inferno $(dir $(RELEASE))bench-tools)" $(BENCH_FILES)

overload: build deps-bench ## when the tools begin and end beside loads that leave no CPU (OVERLOAD='--runs 20 --theirs --load epoll=2'; in other kernels: tests/kernels/overload)
	$(CARGO) build --release --locked -p usekit-bench
	setup/as-root $(RELEASE)/usekit-bench-overload --ours-dir $(RELEASE) $(OVERLOAD)

FUZZ_SECONDS ?= 10
fuzz: deps-test ## look for files that break the readers of foreign files (FUZZ_SECONDS=10 each)
	fuzz/run $(FUZZ_SECONDS) unwind
	fuzz/run $(FUZZ_SECONDS) perf_map
	fuzz/run $(FUZZ_SECONDS) elf
	fuzz/run $(FUZZ_SECONDS) maps
	fuzz/run $(FUZZ_SECONDS) variables
	fuzz/run $(FUZZ_SECONDS) python
	fuzz/run $(FUZZ_SECONDS) profile

dist: ## a statically linked program that runs everywhere, with pages and completions: .tar.gz, .deb and .rpm in target/dist; the sources with BPF objects (MACHINE=aarch64: for arm64, without sources)
	@setup/deps build dist
	MACHINE=$(MACHINE) SPEAKER=$(SPEAKER) setup/dist $(TOOLS)

cross: ## `make dist` for arm64 on x86-64, with a toolchain below target/cross; held to what `make dist` makes here
	$(MAKE) --no-print-directory dist MACHINE=
	$(MAKE) --no-print-directory dist MACHINE=aarch64 \
	    SPEAKER=$(or $(CARGO_TARGET_DIR),target)/$(shell uname -m)-unknown-linux-gnu/dist/usekit
	$(CARGO) test --locked -p usekit-workloads --test dist machines:: -- --ignored

dist-test: dist ## install and run it where there is no C library at all, another one, or one elsewhere; in Debians and containers
	@setup/deps build test dist-test
	$(CARGO) test --locked -p usekit-workloads --test dist --config 'target."cfg(unix)".runner = "setup/as-root"'

install: ## install what `make build` made: programs, man pages, examples, completions
	setup/install $(RELEASE) '$(DESTDIR)$(PREFIX)' $(TOOLS)

examples: build deps-test ## record the runs that manual and README print (on a quiet machine)
	man/record $(RELEASE)

docs: deps ## the crates' documentation, in target/doc
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --lib

clean: ## remove what was built
	$(CARGO) clean

deps: ## install what the build needs, if something is missing
	@setup/deps build

deps-test:
	@setup/deps build test

deps-kernels:
	@setup/deps build test kernels

deps-bench:
	@setup/deps build bench
