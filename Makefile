# Bare make lists the targets. Go is all that build, run and lint need; test -race
# needs a C compiler, and the clients in other languages their interpreters.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MODULE := github.com/tenure-dev/tenure

# A release is a tag; anything else says which commit it is.
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || echo 0.1.0-dev+$$(git rev-parse --short HEAD 2>/dev/null || echo unknown))
LDFLAGS := -s -w -X main.version=$(VERSION) -X $(MODULE)/server.Version=$(VERSION)
FUZZTIME ?= 20s
SEEDS ?= 1000
FROM ?= 1
BUGS ?= .
HANDOVERS ?= 10000
OPS ?= 5000
CHAOS ?= 1h
ARGS ?=

.PHONY: help build run cluster tools test at-full-size check lint fuzz sim simulation planted chaos soak differ bench failover cover

help:
	@echo 'Targets:'
	@grep -E '^## ' Makefile | sed 's/^## /  /'

## build   bin/tenured and bin/tenure, static binaries
build:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

## run     build and start the server with its data in ./data, on loopback (ARGS='--flag ...')
run: build
	exec bin/tenured --data-dir ./data --hints $(ARGS)

## cluster build and run three members on loopback, with their data in ./data/cluster, until Ctrl-C
cluster: build
	exec scripts/cluster

# Without the race detector: real processes, and go-zookeeper, which has a race of its own
# (lastZxid, read when watches are armed again while the receiver runs).
PLAIN := $(MODULE)/tests $(MODULE)/recipes/zk

## tools   install what the tests need beyond Go, with apt if this is root
tools:
	scripts/tools

## test    all tests: those that drive real processes, and then all others with the race detector
test: build tools
	$(MAKE) --no-print-directory -k -j 2 -O $(addprefix plain/,$(PLAIN)) at-full-size
	$(MAKE) --no-print-directory -k -j 2 -O $$(go list ./... | grep -vxF "$$(printf '%s\n' $(PLAIN))" | sed 's,^,race/,')

race/%:
	go test -race -timeout 20m $*

plain/%: # most of them wait most of the time
	go test -timeout 25m -parallel 5 $*

at-full-size: # what is smaller with the race detector
	go test -run 'TestConformanceFake.*/P68' $(MODULE)/recipes/recipestest

## check   lint and the quick tests: what to run before a commit
check: lint
	go test -short $$(go list ./... | grep -v '^$(MODULE)/tests$$')
	go test -run 'Test(Imports|Core|Files|Nothing|Tests|Packages|Exported|Names)' ./tests

## lint    gofmt, go vet, staticcheck, unparam, unconvert, misspell
lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "run gofmt on:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	go tool unparam ./...
	go tool unconvert ./...
	git ls-files -z -- '*.go' '*.md' Makefile | xargs -0 go tool misspell -error

## fuzz    each fuzz target for FUZZTIME (20s)
fuzz:
	@go test -list '^Fuzz' ./... \
	| awk '/^Fuzz/ { name[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, name[i]; n = 0 }' \
	| while read -r package target; do \
		echo "== $$target in $$package"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$$package" </dev/null; \
	done

## simulation  the ensemble on one thread, with faults: SEEDS (2000) runs from FROM (1) on
simulation: SEEDS = 2000
simulation:
	go test -c -o bin/server.test ./server
	cd server && ../bin/server.test -test.run '^TestSimulation$$' -test.v -test.timeout 24h -sim.seeds $(SEEDS) -sim.from $(FROM)

## planted plant bugs, to see that the tests find them; BUGS picks some by a regular expression
planted:
	TENURE_PLANTED='$(BUGS)' go test -count 1 -v -timeout 2h -run TestPlantedBugs ./tests

## sim     random and crash tests with SEEDS seeds (1000), and as many simulations of the ensemble
sim:
	$(MAKE) --no-print-directory simulation SEEDS=$(SEEDS)
	TENURE_SEEDS=$(SEEDS) go test -count 1 -timeout 4h -run 'Model|Replay' ./session ./watch
	go test -count 1 -timeout 1h -run Crash ./replica
	go test -c -o bin/znode.test ./znode
	go test -c -o bin/store.test ./store
	@for seed in $$(seq $(SEEDS)); do \
		{ (cd znode && ../bin/znode.test -test.run Random -seed $$seed) \
			&& (cd store && TENURE_SEED=$$seed ../bin/store.test -test.run 'Crash|Random'); } >bin/sim.log 2>&1 \
		|| { cat bin/sim.log; echo "failed with seed $$seed"; exit 1; }; \
	done
	@echo '$(SEEDS) seeds passed'

## soak    elections under faults on the daemon and on ZooKeeper: runs of HANDOVERS (10000) each with SEEDS (10) seeds
soak: SEEDS = 10
soak:
	@go test -c -o bin/tests.test ./tests
	@go test -c -o bin/zk.test ./recipes/zk
	@for seed in $$(seq $(SEEDS)); do \
		for run in tests:TestOverlap recipes/zk:TestOverlapOneServer recipes/zk:TestOverlapEnsemble; do \
			dir=$${run%:*}; echo "== $${run#*:}, seed $$seed"; \
			(cd $$dir && TENURE_SEED=$$seed TENURE_HANDOVERS=$(HANDOVERS) TENURE_REQUIRE_FOREIGN=1 \
				"$(CURDIR)/bin/$${dir##*/}.test" -test.v -test.timeout 4h -test.run "^$${run#*:}\$$") >bin/soak.log 2>&1 \
			|| { cat bin/soak.log; echo "failed with seed $$seed"; exit 1; }; \
			grep -h 'largest overlap' bin/soak.log; \
		done; \
	done

## chaos   the cases of real ensembles at their full size, then faults on one for CHAOS (1h); SEED replays
chaos:
	TENURE_FULL=1 TENURE_REQUIRE_FOREIGN=1 go test -count 1 -v -timeout 2h -parallel 2 -run '^(TestC[0-9]+Ensemble.*|TestLinearizabilityOfEnsemble|TestPartitionOnLAN)$$' ./tests
	TENURE_CHAOS=$(CHAOS) TENURE_SEED=$(SEED) TENURE_REQUIRE_FOREIGN=1 go test -count 1 -v -timeout 24h -run '^TestChaos$$' ./tests

## differ  the ZooKeeper door and ZooKeeper side by side: SEEDS (200) random sequences of OPS (5000) requests
differ: SEEDS = 200
differ:
	TENURE_SEEDS=$(SEEDS) TENURE_OPS=$(OPS) TENURE_REQUIRE_FOREIGN=1 \
		go test -count 1 -v -timeout 4h -run '^TestDifferTenureFromZooKeeper$$' ./tests

## bench   Go benchmarks, then tenure bench against a server of its own (ARGS='--flag ...')
bench: build
	go test -run '^$$' -bench . -benchmem ./...
	scripts/with-server bin/tenure bench $(ARGS)

## failover how long a leader is missed, for Tenure, ZooKeeper and etcd (ARGS='ROUNDS CONTENDER,...')
failover:
	scripts/failover $(ARGS)

## cover   coverage of all packages by all tests: the sum here, the lines in cover.html
cover:
	go test -coverpkg ./... -coverprofile cover.out ./...
	go tool cover -html cover.out -o cover.html
	@go tool cover -func cover.out | tail -1
