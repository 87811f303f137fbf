# Every target works in a clean clone. A target fetches the tools that it needs into .cache, or
# says what is missing.

GO          ?= go
CACHE       := $(CURDIR)/.cache
STATICCHECK := $(CACHE)/bin/staticcheck
FUZZTIME    ?= 10s

# Runs go test and compares the tests that skip with tests/skips.txt.
GOTEST := $(CACHE)/bin/gotest
export GO

# The build tag of the simulated device.
ACCEL := -tags accel

# make faults runs one of FAULT_SHARDS runs, which FUCINA_TEST_SEED chooses.
FAULT_SHARDS ?= 1
# The duration of each of the two runs of make soak.
SOAKTIME     ?= 30m

# What bench-llama and bench-ops compare with.
PYTHON            ?= python3
LLAMA             := $(CACHE)/llama
LLAMA_PACKAGE     := @node-llama-cpp/linux-x64@3.21.1
OPENBLAS          := $(CACHE)/openblas
OPENBLAS_PACKAGES := libopenblas0-pthread libgfortran5 libquadmath0

.PHONY: all build cross test full race invariants discrete conformance faults soak arm64 fuzz bench bench-llama bench-ops lint fmt generated clean $(GOTEST)

all: build lint test

build:
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build $(ACCEL) ./...

# Builds and vets for the other supported systems, tests included.
cross:
	for target in linux/arm64 darwin/arm64 windows/amd64; do \
		echo "$$target"; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./... && \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) vet ./... || exit 1; \
	done

# Packages with assembly, which noasm leaves out.
test: $(GOTEST)
	$(GOTEST) ./...
	$(GOTEST) -tags noasm ./quant ./internal/team ./kernels/cpu/...

# The cases that take seconds and rarely fail if make test passes.
full: $(GOTEST)
	FUCINA_TEST_FULL=1 $(GOTEST) ./core/dtype ./llm/quantize

# The race detector needs a C compiler.
race: $(GOTEST)
	CGO_ENABLED=1 $(GOTEST) -race ./...
	CGO_ENABLED=1 FUCINA_TEST_PROVIDER=discrete $(GOTEST) -race $(ACCEL) ./...
	CGO_ENABLED=1 $(GOTEST) -race -tags invariants ./internal/offheap

# Poison on free, guard pages and leak reports.
invariants: $(GOTEST)
	$(GOTEST) -tags invariants ./...
	FUCINA_TEST_PROVIDER=discrete $(GOTEST) -tags 'invariants accel' ./...

# The tests on the simulated device.
discrete: $(GOTEST)
	FUCINA_TEST_PROVIDER=discrete $(GOTEST) $(ACCEL) ./...

# The whole suite of operations and queues, on the CPU and on the simulated device.
conformance:
	$(GO) test -count=1 ./core/conformance/...
	FUCINA_TEST_FULL=1 $(GO) test -count=1 -v $(ACCEL) ./tests/conformance

# Two sessions with random triples of faults, delays and cancellations: 2000 runs, 200 runs under
# the race detector, and 300 runs with invariants. A failure prints the variables that repeat
# its run (tests/faults/doc.go).
faults: export FUCINA_FAULT_SHARDS := $(FAULT_SHARDS)
faults:
	FUCINA_FAULT_RUNS=2000 $(GO) test -count=1 -v $(ACCEL) ./tests/faults
	CGO_ENABLED=1 FUCINA_FAULT_RUNS=200 $(GO) test -count=1 -v -race $(ACCEL) ./tests/faults
	FUCINA_FAULT_RUNS=300 $(GO) test -count=1 -v -tags 'invariants accel' ./tests/faults

# Opens and closes sessions on one model for an hour, half of it on the CPU and half on the
# simulated device. Memory, goroutines and the time of an operation must not grow.
soak:
	FUCINA_SOAK_TIME=$(SOAKTIME) $(GO) test -count=1 -v -timeout 0 $(ACCEL) ./tests/soak

# The tests as arm64 code, by user-mode emulation of a processor that has everything, and those of
# the assembly also on one without SMMLA and on one without SDOT. FUCINA_CPU makes sure that these
# have no less. -short leaves out tests that take minutes there; the two processors do without
# slow ones that no assembly changes.
arm64: $(GOTEST)
	@command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null || { \
		echo "make arm64 needs qemu-aarch64 (Debian package qemu-user-static)"; exit 1; }
	@qemu=$$(command -v qemu-aarch64-static || command -v qemu-aarch64); export CGO_ENABLED=0 GOARCH=arm64; set -ex; \
	$(GOTEST) -short -exec "$$qemu -cpu max" ./...; \
	slow='^(TestPagedAttention|TestLongRowsLook|TestAttentionCost)$$'; \
	FUCINA_CPU=dotprod $(GOTEST) -short -skip "$$slow" -exec "$$qemu -cpu neoverse-n1" ./kernels/cpu/... ./quant; \
	FUCINA_CPU=neon $(GOTEST) -short -skip "$$slow" -exec "$$qemu -cpu cortex-a57" ./kernels/cpu/... ./quant

# One short run of every fuzz target. If the time ends while a worker runs an input, the go
# command reports a failure ("context deadline exceeded") although no input failed. The target
# does not count that as a failure.
fuzz:
	@set -e; mkdir -p $(CACHE); log=$(CACHE)/fuzz.log; for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; \
			if $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg >$$log 2>&1; then tail -n 1 $$log; \
			elif grep -q 'context deadline exceeded' $$log && ! grep -q 'Failing input' $$log; then echo "ended at an input"; \
			else cat $$log; exit 1; fi; \
		done; \
	done

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Comparisons with other programs: docs/benchmarks.md. Nothing is installed outside of .cache.
bench-llama: $(LLAMA)
	$(GO) build -o $(CACHE)/bin/fucina ./cmd/fucina
	$(GO) build -o $(CACHE)/bin/floors ./tests/bench/floors
	$(PYTHON) tests/bench/llama/bench.py $(CACHE)

bench-ops: $(OPENBLAS)
	$(GO) build -o $(CACHE)/bin/ops ./tests/bench/ops
	$(GO) build -o $(CACHE)/bin/floors ./tests/bench/floors
	$(PYTHON) tests/bench/ops/bench.py $(CACHE)

lint: fmt generated $(STATICCHECK)
	$(GO) vet ./...
	$(GO) vet $(ACCEL) ./...
	$(STATICCHECK) ./...
	$(STATICCHECK) $(ACCEL) ./...

fmt:
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt would change:" $$files; exit 1; fi

# The generators are modules of their own, whose tests compare the assembly with their output. The
# assembly is outside of those modules, so a cached result would not see a change of it.
generated:
	cd quant/_asm && $(GO) vet . && $(GO) test -count=1 .
	cd kernels/cpu/_asm && $(GO) vet ./... && $(GO) test -count=1 ./...

$(GOTEST):
	@$(GO) build -o $@ ./tests/gotest

# The prebuilt libraries of llama.cpp, from a package of npm.
$(LLAMA):
	@command -v npm >/dev/null || { echo "make bench-llama needs npm (Debian package npm)"; exit 1; }
	mkdir -p $(CACHE)/npm
	cd $(CACHE)/npm && tar xzf "$$(npm pack --silent $(LLAMA_PACKAGE))"
	mv $(CACHE)/npm/package/bins/linux-x64 $@
	rm -rf $(CACHE)/npm

# OpenBLAS and the libraries that it needs, from Debian's packages.
$(OPENBLAS):
	@command -v apt-get >/dev/null || { echo "make bench-ops needs apt-get, and a Debian system"; exit 1; }
	mkdir -p $(CACHE)/deb
	cd $(CACHE)/deb && apt-get download $(OPENBLAS_PACKAGES) && for p in *.deb; do dpkg -x "$$p" root; done
	mv "$$(dirname "$$(find $(CACHE)/deb/root -name openblas-pthread)")" $@
	rm -rf $(CACHE)/deb

$(STATICCHECK):
	GOBIN=$(CACHE)/bin $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2

clean:
	rm -rf $(CACHE)
