# Every target works in a clean clone. Tools that a target needs are fetched by
# package name into .cache, or the target says what is missing.

GO          ?= go
CACHE       := $(CURDIR)/.cache
STATICCHECK := $(CACHE)/bin/staticcheck
FUZZTIME    ?= 10s

# Runs go test and compares the tests that skip with tests/skips.txt.
GOTEST := $(CACHE)/bin/gotest
export GO

# The build tags that this repository knows besides the default of none.
ACCEL := -tags accel

# One in how many of the runs of make faults to run, chosen by FUCINA_TEST_SEED.
FAULT_SHARDS ?= 1
# How long each of the two runs of make soak takes.
SOAKTIME     ?= 30m

.PHONY: all build cross test full race invariants discrete conformance faults soak arm64 fuzz bench lint fmt generated clean $(GOTEST)

all: build lint test

build:
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build $(ACCEL) ./...

# Type-checks and builds for the other supported systems, tests included.
cross:
	for target in linux/arm64 darwin/arm64 windows/amd64; do \
		echo "$$target"; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./... && \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) vet ./... || exit 1; \
	done

# noasm leaves the assembly out, which no package but quant has.
test: $(GOTEST)
	$(GOTEST) ./...
	$(GOTEST) -tags noasm ./quant

# What takes seconds and shows little that make test does not.
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

# The tests that have a device, on the simulated discrete one.
discrete: $(GOTEST)
	FUCINA_TEST_PROVIDER=discrete $(GOTEST) $(ACCEL) ./...

# The suite that every provider passes, all of it on the CPU with each number of threads
# and on the simulated device with each kind of delay.
conformance:
	$(GO) test -count=1 ./core/conformance/...
	FUCINA_TEST_FULL=1 $(GO) test -count=1 -v $(ACCEL) ./tests/conformance

# Random triples of faults, delays and cancellations against two sessions: 2000 runs,
# 200 under the race detector, 300 with invariants. A run is repeated by the variables
# that its failure prints (tests/faults/doc.go).
faults: export FUCINA_FAULT_SHARDS := $(FAULT_SHARDS)
faults:
	FUCINA_FAULT_RUNS=2000 $(GO) test -count=1 -v $(ACCEL) ./tests/faults
	CGO_ENABLED=1 FUCINA_FAULT_RUNS=200 $(GO) test -count=1 -v -race $(ACCEL) ./tests/faults
	FUCINA_FAULT_RUNS=300 $(GO) test -count=1 -v -tags 'invariants accel' ./tests/faults

# Sessions that come and go on one model for an hour, half of it on the CPU and half on
# the simulated device: memory, goroutines and the time of an op stay where they are.
soak:
	FUCINA_SOAK_TIME=$(SOAKTIME) $(GO) test -count=1 -v -timeout 0 $(ACCEL) ./tests/soak

# The tests as arm64 code, by user-mode emulation. -short leaves out what takes
# minutes there.
arm64: $(GOTEST)
	@command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null || { \
		echo "make arm64 needs qemu-aarch64 (Debian package qemu-user-static)"; exit 1; }
	CGO_ENABLED=0 GOARCH=arm64 $(GOTEST) -short \
		-exec "$$(command -v qemu-aarch64-static || command -v qemu-aarch64)" ./...

# One short run of every fuzz target. When the time is up while a worker is at an
# input, the go command calls that a failure ("context deadline exceeded") although
# no input failed; such an end counts as the end of the run.
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

lint: fmt generated $(STATICCHECK)
	$(GO) vet ./...
	$(GO) vet $(ACCEL) ./...
	$(STATICCHECK) ./...
	$(STATICCHECK) $(ACCEL) ./...

fmt:
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt would change:" $$files; exit 1; fi

# The assembly is what its generator, a module of its own, writes. A cached result would
# not see a change of the assembly, which is outside of that module.
generated:
	cd quant/_asm && $(GO) vet . && $(GO) test -count=1 .

$(GOTEST):
	@$(GO) build -o $@ ./tests/gotest

$(STATICCHECK):
	GOBIN=$(CACHE)/bin $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2

clean:
	rm -rf $(CACHE)
