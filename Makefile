# PipeOps VM Agent. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

MODULE  := github.com/pipeops/pipeops-vm-agent
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo none)
# A release names its commit in full, in its provenance too.
RELEASE_COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo none)
RELEASE ?= $(if $(filter v%,$(VERSION)),$(VERSION),v0.0.0-g$(VERSION))
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
BIN     := bin
TOOL    := go tool -modfile=internal/tools/go.mod
SCRIPTS := $(shell git ls-files '*.sh' .ci/run deployments/openrc 2>/dev/null)
# A module of its own, for what only the benchmark needs.
PEERS   := test/bench/peers
# Another one: what a plugin of Terraform needs is in no other program.
PROVIDER := terraform
SUITE   := go run ./test/suite/cmd/suite
# Test reports, and the repetition of what failed.
GOTESTSUM := go tool -modfile=internal/tools/gotestsum/go.mod gotestsum

export CGO_ENABLED ?= 0
# What is shipped is compiled with -trimpath, and Go keeps what was compiled without apart: all that is
# vetted, linted and tested is compiled the same way, once.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)
# The race detector has each process wait a second at its end, for stragglers.
export GORACE ?= atexit_sleep_ms=50

##@ Start here
.PHONY: demo
demo: ## Watch the whole way on real parts: cluster, broker, control plane, agent, Runner
	@go run ./test/setup demo
	@mkdir -p $(BIN)
	@go build -trimpath -o $(BIN)/demo ./test/demo
	@exec $(BIN)/demo

.PHONY: test
test: ## What a change must pass: unit, integration and end to end, on real parts (installs what it needs)
	@go run ./test/setup test
	@$(SUITE) test

.PHONY: test-all
test-all: ## What a release must pass: also chaos, machines, both databases, hostile peers, fuzzing, races
	@go run ./test/setup test-all
	@$(SUITE) all

.PHONY: test-touched
LIMIT ?= 24h
# On main nothing shows where the change began: all files count as changed.
test-touched: ## The parts of test-all whose inputs changed since BASE=REF, as far as LIMIT=25m allows
	@base='$(BASE)'; head=$$(git rev-parse HEAD); \
	  base=$${base:-$$(git merge-base HEAD origin/main 2>/dev/null || echo "$$head")}; \
	  if test -z '$(BASE)' -a "$$base" = "$$head"; then all=ls-files; else all="diff --name-only $$base"; fi; \
	  changed=$$(git $$all && git ls-files --others --exclude-standard); LIMIT=$(LIMIT) $(SUITE) touched <<<"$$changed"

.PHONY: test-part
test-part: ## Parts of test-all by name: PART="hostile fuzz"
	@$(SUITE) part $(PART)

# Each is a page as test/browser looks at it: docs/images/NAME.png of NAME=PAGE.
PICTURES := console-agent=console-agent-wide-light dashboard-app=app-wide-light dashboard-overview=overview-wide-light
.PHONY: pictures
pictures: ## The pictures in docs/images, as the tests in Chromium and the demo take them
	@command -v chromium >/dev/null || { echo "fix: make test-all installs Chromium; or install it, as root"; exit 1; }
	@PIPEOPS_TEST_SUITE=all PIPEOPS_TEST_SCREENSHOTS=$(CURDIR)/$(BIN)/pictures go test -count=1 ./test/browser
	@mkdir -p docs/images
	@for p in $(PICTURES); do cp "$(BIN)/pictures/$${p#*=}.png" "docs/images/$${p%%=*}.png"; done
	@DEMO_KEEP=0 DEMO_PICTURE=$(CURDIR)/docs/images/deploy.svg $(MAKE) demo
	@PIPEOPS_RECORD_PICTURES=1 go test -count=1 -run TestPictures_UpToDate ./docs

.PHONY: test-short
test-short: ## The loop for daily work, under a minute after a change of one package: no cluster, no broker
	@go run ./test/setup test-short
	@$(SUITE) short

.PHONY: bare-clone
bare-clone: ## `make test-short` of HEAD in a shallow clone that has nothing beside it: no charts, no tags, no remote
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	  git clone --quiet --depth 1 --no-tags "file://$(CURDIR)" "$$dir/clone"; git -C "$$dir/clone" remote remove origin; \
	  env -u MAKEFLAGS make --no-print-directory -C "$$dir/clone" test-short

.PHONY: cover
cover: ## The line coverage of production code by `make test` and by the long tests of the product's packages
	@go run ./test/setup test
	@test/suite/cover.sh

.PHONY: t
t: ## One package's tests, all or those that match: PKG=./internal/app RUN=Deploy
	@$(if $(PKG),,$(error name a package: make t PKG=./internal/app))
	@go list $(PKG) >/dev/null 2>&1 || { echo "no package $(PKG); fix: name one of \`go list ./...\`, such as PKG=./internal/app"; exit 1; }
	@test -z '$(RUN)' || go test -trimpath -vet=off -list '$(firstword $(subst /, ,$(RUN)))' $(PKG) | grep -E '^(Test|Fuzz)' >/dev/null \
	  || { echo "no test of $(PKG) matches RUN=$(RUN); its tests are:"; go test -trimpath -vet=off -list . $(PKG); exit 1; }
	@$(if $(CLUSTER),PIPEOPS_TEST_CLUSTER=$(CLUSTER)) $(GOTESTSUM) --format=testname -- -trimpath -vet=off -timeout=40m $(if $(RUN),-run '$(RUN)') $(PKG)

.PHONY: bench bench-short bench-apps bench-streams bench-sources bench-monitoring bench-tunnel bench-agents bench-gateway
bench: ## Measure everything against its bounds: Apps, streams, Git sources, monitoring, tunnel, agents, gateway; some 70 minutes (docs/contributing/bench.md)
bench-short: ## Tunnel and agents, small and short, for working on what is measured: two minutes. `make bench-apps SHORT=yes` does another part so
bench-short: export SHORT := yes
bench: PARTS := apps streams sources monitoring tunnel agents gateway
bench-short: PARTS := tunnel agents gateway
bench bench-short:
	@$(if $(SHORT),,go run ./test/setup bench)
	@broken=; for part in $(PARTS); do echo "== bench-$$part"; \
	  $(MAKE) --no-print-directory bench-$$part || broken="$$broken bench-$$part"; done; \
	  test -z "$$broken" || { echo "failed:$$broken"; exit 1; }

BENCH_FLAGS := $(if $(SHORT),-short,-out docs/bench -page docs/contributing/bench.md)
bench-apps: ## Of these the agent beside 25 000 pods: some ten minutes
bench-streams: ## Of these followed logs, port-forwards and copies: some 15 minutes
bench-sources: ## Of these how soon a push is applied, beside 200 Git sources: some two minutes
bench-monitoring: ## Of these the memory of agent, Prometheus and Loki on a small machine: some 20 minutes
bench-apps bench-streams bench-sources bench-monitoring: bench-%:
	@go run ./test/setup bench-$*
	@mkdir -p $(BIN)
	@go build -trimpath -o $(BIN)/bench ./test/bench
	@exec $(BIN)/bench $* $(BENCH_FLAGS)
bench-tunnel: ## Of these the tunnel beside its peers: some ten minutes
bench-agents: ## Of these a control plane with 10 000 agents, and its console: some eight minutes
bench-gateway: ## Of these the gateway beside direct connections: some three minutes
bench-tunnel bench-agents bench-gateway: bench-%:
	@go run ./test/setup bench-$*
	@mkdir -p $(BIN)
	@cd $(PEERS) && go build -trimpath -o $(CURDIR)/$(BIN)/peers .
	@exec $(BIN)/peers $* $(BENCH_FLAGS)

.PHONY: chaos
DURATION ?= 1h
chaos: ## Everything fails at random for DURATION=1h; an accountant looks for what was lost or doubled. SEED=N for the same again (docs/contributing/chaos.md)
	@go run ./test/setup chaos
	@mkdir -p $(BIN)
	@go build -trimpath -o $(BIN)/chaos ./test/chaos
	@exec $(BIN)/chaos -duration $(DURATION) $(if $(SEED),-seed $(SEED)) \
	  $(if $(filter 1h,$(DURATION)),-out docs/bench -page docs/contributing/chaos.md) $(CHAOS_FLAGS)

.PHONY: check
check: check-setup tidy-check format-check lint vet typecheck shell prose vuln race ## What CI runs beside the tests: tidy, format, lint (vet, import law), types on Windows and macOS, shellcheck, vale, govulncheck, race

##@ Build
.PHONY: build
build: ## Build pipeops-agent, pipeops-controlplane and pipeops-runner into bin/
	@for c in agent controlplane runner; do \
	  echo "build $(BIN)/pipeops-$$c $(VERSION)"; \
	  go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/pipeops-$$c ./cmd/$$c; done

.PHONY: image
image: ## Build the images of agent, control plane and Runner (linux/amd64 and arm64) into dist/, without a Docker engine
	@mkdir -p dist
	go run ./scripts/image --package ./cmd/agent --tag pipeops/agent:$(VERSION) --ldflags '$(LDFLAGS)' \
	  --platform linux/amd64,linux/arm64 --output dist/pipeops-agent-image.tar
	go run ./scripts/image --package ./cmd/controlplane --tag pipeops/controlplane:$(VERSION) --ldflags '$(LDFLAGS)' \
	  --data-dir /var/lib/pipeops-controlplane \
	  --platform linux/amd64,linux/arm64 --output dist/pipeops-controlplane-image.tar
	go run ./scripts/image --package ./cmd/runner --tag pipeops/runner:$(VERSION) --ldflags '$(LDFLAGS)' \
	  --platform linux/amd64,linux/arm64 --output dist/pipeops-runner-image.tar

.PHONY: release
release: ## All that is published for a version, into dist/VERSION; SIGN_KEY=FILE signs it (docs/contributing/publishing.md)
	go run ./scripts/release --version $(RELEASE) --commit $(RELEASE_COMMIT) --output dist/$(RELEASE) \
	  $(if $(SIGN_KEY),--sign '$(SIGN_KEY)') $(if $(SIGN_PASSPHRASE_FILE),--passphrase-file '$(SIGN_PASSPHRASE_FILE)') \
	  $(if $(RELEASE_KEYS),--trust '$(RELEASE_KEYS)') $(if $(CONTROL_PLANE_URL),--control-plane-url '$(CONTROL_PLANE_URL)') \
	  $(if $(EXPIRES),--expires '$(EXPIRES)') $(if $(CHART_REGISTRY),--chart-registry '$(CHART_REGISTRY)')

.PHONY: site
site: ## Make the documentation's site in dist/site, with Hugo (some minutes the first time)
	@go tool -modfile=internal/tools/hugo/go.mod hugo --source docs/site --quiet --panicOnWarning
	@echo "open dist/site/index.html"

.PHONY: bundle
bundle: image ## Put all that install.sh downloads into one archive, for machines without internet
	go run ./scripts/pincharts -download dist/charts
	GOOS=linux GOARCH=$(or $(ARCH),amd64) CGO_ENABLED=0 $(MAKE) build BIN=dist/programs
	scripts/bundle.sh --version $(VERSION) --arch $(or $(ARCH),amd64) --image dist/pipeops-agent-image.tar --charts dist/charts --programs dist/programs --output dist

.PHONY: generate
generate: ## Write what is made from the code: deep copies, CRD, manifest, OpenAPI, CLI reference
	go generate ./...
	cd $(PROVIDER) && go generate ./...
	$(MAKE) format

.PHONY: charts
charts: ## Download the components' charts, which some tests install, into the tests' cache; needs internet
	@go run ./scripts/pincharts -for-tests -download "$$(go run ./test/charts/cmd/cache)"

.PHONY: pin-charts
pin-charts: ## Write the digests of the components' charts, as their projects publish them; needs internet
	go run ./scripts/pincharts

##@ Parts, one by one
.PHONY: cluster-up cluster-down broker
cluster-up: ## Start the test cluster "dev"
	@go run ./test/cluster/cmd/cluster up --name dev
cluster-down: ## Stop the test cluster "dev"
	@go run ./test/cluster/cmd/cluster down --name dev
broker: ## Run a private RabbitMQ until you interrupt it
	@go run ./test/debian/cmd/server run broker

##@ Checks, one by one
.PHONY: check-setup
check-setup:
	@go run ./test/setup check

.PHONY: tidy-check
tidy-check:
	@echo "== go.mod is tidy"
	@go mod tidy -diff || { echo "fix: go mod tidy"; exit 1; }
	@for m in $(PEERS) $(PROVIDER); do (cd $$m && go mod tidy -diff) || { echo "fix: cd $$m && go mod tidy"; exit 1; }; done

.PHONY: format
format: ## Format Go and shell files
	@gofmt -w $$(git ls-files '*.go')
	@test -z "$(SCRIPTS)" || $(TOOL) shfmt -w -i 2 -ci $(SCRIPTS)

.PHONY: format-check
format-check:
	@echo "== format"
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not formatted: $$out"; echo "fix: make format"; exit 1; }
	@test -z "$(SCRIPTS)" || $(TOOL) shfmt -d -i 2 -ci $(SCRIPTS) || { echo "fix: make format"; exit 1; }

.PHONY: vet
vet: # what the linters do for all else
	@echo "== go vet of the benchmark's own module"
	@cd $(PEERS) && go vet ./...

.PHONY: typecheck
typecheck: # `make release` builds these
	@echo "== agent and Runner on Windows and macOS"
	@go run ./scripts/typecheck ./cmd/agent ./cmd/runner

.PHONY: lint
lint: ## golangci-lint with the list in .golangci.yaml, the import law among it
	@echo "== golangci-lint (some two minutes the first time)"
	@$(TOOL) golangci-lint run ./...
	@cd $(PROVIDER) && go tool -modfile=../internal/tools/go.mod golangci-lint run ./...

.PHONY: prose
prose: ## vale over documents and comments, with the rules in internal/tools/vale/styles; comments of at most 100 columns
	@git ls-files '*.go' | grep -v zz_generated | xargs awk '/^\t*\/\/ / && !/https?:/ { line = $$0; gsub(/\t/, "    ", line); \
	  if (length(line) > 100) { print FILENAME ":" FNR ": wrap this comment at 100 columns"; bad = 1 } } END { exit bad }'
	@echo "== vale (a minute the first time)"
	@CGO_ENABLED=1 go tool -modfile=internal/tools/vale/go.mod vale --output=line \
	  $$(git ls-files '*.md' '*.go' | grep -v -e '_test\.go$$' -e '/testdata/' -e zz_generated)

.PHONY: shell
shell: ## shellcheck over every script
	@echo "== shellcheck"
	@command -v shellcheck >/dev/null || { echo "installing shellcheck"; export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends shellcheck; } >/dev/null \
	  || { echo "fix: install shellcheck, as root"; exit 1; }; }
	@test -z "$(SCRIPTS)" || shellcheck -x $(filter-out scripts/install/%,$(SCRIPTS)) # those are parts of install.sh

.PHONY: vuln
vuln: ## govulncheck; VULN_REQUIRED=yes fails where its database is not reached, GOVULNDB=file:///COPY names another
	@echo "== govulncheck"
	@go run ./scripts/vulncheck
	@go run ./scripts/vulncheck -module $(PROVIDER)

.PHONY: race
race: ## The short tests with the race detector
	@$(SUITE) race

##@ Help
.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: clean
clean: ## Remove what was built here (not the test parts' cache)
	rm -rf $(BIN) dist
