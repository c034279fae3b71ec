package tests

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// environmentNumber returns a number that the environment may set.
func environmentNumber(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q must be a number", name, text)
	}
	return n
}

// randomSeed returns a new seed, or the one of TENURE_SEED, and prints how to replay.
// Processes and the kernel choose their own order, so a replay repeats what was asked
// and when, not every interleaving.
func randomSeed(t *testing.T) uint64 {
	t.Helper()
	seed := environmentNumber(t, "TENURE_SEED", rand.Uint64())
	t.Logf("replay: TENURE_SEED=%d go test -count 1 -run '^%s$' ./tests", seed, t.Name())
	return seed
}

// Goal: whatever the moment of a kill -9 under load, no acknowledged write is lost, none
// is half applied or applied twice, sessions go on, and state and log agree. Method:
// clients with many outstanding writes of all kinds run on over TENURE_CRASH_ROUNDS
// (200) kills and restarts. Each worker knows exactly what must be there, because the
// client gets an answer to every write in the end; in each round all of it is compared
// with the server, Stats included. At the end the digest must survive a kill and a
// clean stop, and tenured check must find nothing after either.
func TestC123CrashKill9(t *testing.T) {
	rounds := int(environmentNumber(t, "TENURE_CRASH_ROUNDS", 200))
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMember(t, "--history-count", "20000")
	load := newCrashLoad(t, m.connect, seed, 4, 12)
	load.run(func() {
		for round := range rounds {
			load.crashRound(m, rng, round)
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
		}
	})
	t.Logf("%d kills, %d writes acknowledged, %v", load.kills, load.acknowledged.Load(), load.resent())
	load.mustSurvive(m, (*member).crash, "after kill -9")
	load.mustSurvive(m, (*member).stop, "after a clean stop")
}

// Goal: the state is what the log says, and nothing else. Method: a short load with
// kills and clean stops between; while the whole log is kept, the state is taken away
// and made anew from the log alone. Digest and contents must be the same.
func TestC123StateEqualsReplayOfTheLog(t *testing.T) {
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	m := newMember(t)
	load := newCrashLoad(t, m.connect, seed, 2, 2)
	load.small = true
	load.run(func() {
		for round := range 6 {
			load.crashRound(m, rng, round)
			load.mustSurvive(m, (*member).stop, "after a clean stop")
		}
	})
	first := figure(t, load.clients[0], "log first")
	if n, err := strconv.Atoi(first); err != nil || n > 2 {
		t.Fatalf("log first is %s: the log was truncated, so this test needs less load", first)
	}
	load.mustSurvive(m, func(m *member) {
		m.crash()
		if err := os.RemoveAll(filepath.Join(m.dir, "state")); err != nil {
			t.Fatal(err)
		}
	}, "after its state was taken away")
}

// crashRound lets the load run for a while, kills the member once or twice, and
// verifies.
func (l *crashLoad) crashRound(m *member, rng *rand.Rand, round int) {
	watchdog := time.AfterFunc(time.Minute, func() {
		l.cancel(errors.New("a round took more than a minute"))
	})
	defer watchdog.Stop()
	kills := 1
	if rng.IntN(4) == 0 {
		kills = 2
	}
	wait := 10*time.Millisecond + upTo(rng, 130*time.Millisecond)
	for range kills {
		<-time.After(wait)
		m.crash()
		l.kills++
		m.start()
		wait = upTo(rng, 60*time.Millisecond) // while clients are about to come back
	}
	l.quiet(func(ctx context.Context) { l.verify(ctx, "round "+strconv.Itoa(round)) })
}

// digestOf asks a daemon that is alone for its digest, without a session.
func digestOf(t *testing.T, d *daemon) string {
	t.Helper()
	response, err := http.Get("http://" + d.address + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var status struct {
		Members []struct {
			Digest string `json:"digest"`
		} `json:"members"`
	}
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil || len(status.Members) != 1 {
		t.Fatalf("the status of %d members: %v", len(status.Members), err)
	}
	return status.Members[0].Digest
}

// mustSurvive ends the member while nothing is written, checks its data, starts it
// again and wants the same digest and everything in its place.
func (l *crashLoad) mustSurvive(m *member, end func(*member), when string) {
	t := l.t
	t.Helper()
	l.quiet(func(ctx context.Context) {
		before := figure(t, l.clients[0], "digest")
		end(m)
		if _, err := os.Stat(filepath.Join(m.dir, "state")); err == nil {
			m.mustBeSound(when)
		}
		// Where no client finds it: sessions that are resumed change the digest.
		aside := startDaemon(t, m.dir, m.args...)
		if after := digestOf(t, aside); after != before {
			t.Errorf("digest %s %s, before it was %s", after, when, before)
		}
		if code := aside.stop(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		m.start()
		l.verify(ctx, when)
	})
}
