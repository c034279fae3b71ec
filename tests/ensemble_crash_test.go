package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// Goal: whatever the moment at which one, two or all members are killed, no acknowledged
// write is lost, none is half applied or applied twice, sessions go on, and all members
// have the same state. Method: the load of TestC123CrashKill9 on three members, of which
// each round kills some at random.
func TestC123EnsembleKill9(t *testing.T) {
	t.Parallel()
	rounds := scaled(15, 200)
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	e := startEnsemble(t, ensembleOptions{})
	load := newCrashLoad(t, e.connect, seed, 3, 6)
	load.run(func() {
		for round := range rounds {
			e.killSome(rng, load, round)
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
		}
	})
	t.Logf("%d kills, %d writes acknowledged, %v", load.kills, load.acknowledged.Load(), load.resent())
	load.quiet(func(ctx context.Context) {
		for _, m := range e.members {
			m.kill()
		}
		e.startAll()
		load.verify(ctx, "after a restart of all")
		e.sameState()
	})
}

// killSome lets the load run for a while, kills one to three members and starts them
// again, and verifies.
func (e *ensemble) killSome(rng *rand.Rand, load *crashLoad, round int) {
	watchdog := time.AfterFunc(time.Minute, func() {
		load.cancel(errors.New("a round took more than a minute"))
	})
	defer watchdog.Stop()
	<-time.After(10*time.Millisecond + upTo(rng, 300*time.Millisecond))
	victims := rng.Perm(len(e.members))[:1+rng.IntN(len(e.members))]
	for _, i := range victims {
		e.members[i].kill()
		load.kills++
	}
	pauseUpTo(rng, 300*time.Millisecond)
	for _, i := range victims {
		e.members[i].spawn()
	}
	for _, i := range victims {
		e.members[i].await()
	}
	load.quiet(func(ctx context.Context) {
		load.verify(ctx, fmt.Sprint("round ", round))
		e.sameState()
	})
}

// Goal: what concurrent clients of all doors and all members see is what one client after
// the other could have seen, each write applied once. Method: the histories of native
// clients behind faulty proxies, of go-zookeeper and of kazoo are one, while members are
// killed and cut off; porcupine looks for an order.
func TestLinearizabilityOfEnsemble(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	python := kazooPython(t)
	length := scaled(8*time.Second, time.Minute)
	rng := rand.New(rand.NewPCG(seed, 100))
	e := startEnsemble(t, ensembleOptions{links: true})
	servers := e.servers()
	var proxied []string
	for _, m := range e.members {
		p := newProxy(t, seed+uint64(m.id), m.dial)
		p.setFaulty(true)
		proxied = append(proxied, p.listener.Addr().String())
	}
	h := newHistory(t, e.connect(client.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var work sync.WaitGroup
	source := func(c treeClient, i uint64) {
		s := h.source(c, seed, i)
		s.pause = 10 * time.Millisecond
		work.Go(func() { s.work(ctx, 1<<20) })
	}
	for i := range uint64(4) {
		o := client.Options{Endpoints: proxied}
		if i == 0 {
			o = client.Options{}
		}
		c := e.connect(o)
		source(nativeTree{t, c}, 2*i)
		source(nativeTree{t, c}, 2*i+1)
	}
	for i := range uint64(2) {
		source(newGoZKTree(t, servers, ""), 100+i)
	}
	work.Go(func() { h.kazoo(t.Context(), python, servers, "", seed, 2, length) })
	for ctx.Err() == nil {
		pauseUpTo(rng, 2*time.Second)
		m := e.waitLeader()
		if rng.IntN(2) == 0 {
			m = e.members[rng.IntN(len(e.members))]
		}
		if rng.IntN(2) == 0 {
			e.links.isolate(m.id, linkHeld)
			pauseUpTo(rng, 3*time.Second)
			e.links.isolate(m.id, linkOpen)
			continue
		}
		m.kill()
		pauseUpTo(rng, time.Second)
		m.start()
	}
	work.Wait()
	h.mustBeLinearizable()
	e.sameState()
}
