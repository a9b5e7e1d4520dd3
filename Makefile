# quantize: two commands set everything up on a fresh machine with Go 1.26: `make demo` and `make test`.
GO      ?= go
BIN     := bin/quantize
export CGO_ENABLED ?= 0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GENERATORS  := internal/kernel/gen quant/grid/ggml/gen

.PHONY: all build demo test race lint fuzz bench golden generate crash arm64 clean check-go

all: build

check-go:
	@$(GO) version >/dev/null 2>&1 || { echo "quantize needs Go 1.26 or later: https://go.dev/dl"; exit 1; }

build: check-go
	$(GO) build -o $(BIN) ./cmd/quantize

# The main job on a real (small) model: AWQ int4 from a parquet of text, sizes, quality, a continuation.
demo: build
	rm -rf out/demo
	$(BIN) testdata/golm-llama --method awq --calib testdata/data/golm-calib.parquet -o out/demo --no-progress
	$(BIN) eval out/demo --base testdata/golm-llama --data testdata/data/golm-eval-ids.jsonl --seq-len 512 --protocol all \
		--prompt '// ReadFull reads exactly len(buf) bytes from r into buf.'

test: check-go
	$(GO) test -timeout 20m ./...

race: check-go
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./...

lint: check-go
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# Every fuzz target for FUZZTIME each (or a count such as 100000x).
FUZZTIME ?= 20s
fuzz: check-go
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; done

# Products, their packing, and error feedback's updates.
MATRIX := kernel\.(tile|copy|transpose|skinny|addScaledRows)
bench: check-go
	$(GO) test -run '^$$' -bench . -benchtime 1s ./internal/kernel ./quant/grid/... ./calib/...
	@mkdir -p out
	$(GO) test -run '^$$' -bench GPTQBlock -benchtime 1x -cpuprofile out/block.prof -o out/block.test ./quant
	@echo "share of the matrix kernels in a GPTQ block (last row, sum%):"
	@$(GO) tool pprof -top -show '$(MATRIX)' out/block.test out/block.prof 2>/dev/null | tail -n +5

# Regenerates the assembly; CI fails when the tree changes.
generate: check-go
	@for g in $(GENERATORS); do [ ! -d $$g ] || (cd $$g && $(GO) generate ./...) || exit 1; done

# Kills real processes at random moments and resumes them, 100 times per method; about 20 minutes.
crash: check-go
	QUANTIZE_LONG=1 $(GO) test -run 'Kill|Crash' -timeout 60m ./cmd/quantize ./formats

# Recomputes the hashes that pin "same input, same recipe, same bytes". A change of any needs a reason in the commit message.
golden: check-go
	QUANTIZE_UPDATE=1 $(GO) test -run 'GoldenHashes$$' ./quant
	git diff --stat -- quant/testdata

# Builds for arm64 and, where qemu-user is installed, runs the packages whose bytes must not depend on the processor.
arm64: check-go
	GOARCH=arm64 $(GO) build ./...
	@command -v qemu-aarch64-static >/dev/null || { echo "qemu-user-static is not installed: compiled only"; exit 0; }; \
		GOARCH=arm64 $(GO) test -exec qemu-aarch64-static -short ./formats/tensor ./quant/grid/...

clean:
	rm -rf bin out
