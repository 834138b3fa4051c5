package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// kind is a way in which a part fails.
type kind struct {
	name   string
	weight int
	// kills reports that the fault ends a process of the product.
	kills bool
	// longest is for how long at most; 0 for what is over at once.
	longest time.Duration
	begin   func(context.Context) error
	end     func(context.Context) error
}

// part is what can fail, in one way at a time.
type part struct {
	name  string
	kinds []kind
}

// fault is one failure of the plan.
type fault struct {
	part, kind string
	at, lasts  time.Duration
	do         kind
}

// round is a time in which things fail, before it is waited until all is quiet.
type round struct {
	number int
	length time.Duration
	faults []fault
	// whole reports that no process of the product was killed, so that growth is visible.
	whole bool
}

const (
	warmUp      = 20 * time.Second
	longestTurn = 10 * time.Minute
	// between is the time from one fault to the next, at most; atOnce how many there
	// are at a time.
	between = 6 * time.Second
	atOnce  = 3
	// shortest is how long a fault lasts at least that is not over at once. Few last
	// for their longest time.
	shortest = 300 * time.Millisecond
)

// rounds plans a run. Of two rounds that follow each other the second one kills no
// process of the product: what has grown then has grown by something else than
// having just been started. The same seed makes the same plan of the same parts.
func rounds(seed uint64, duration time.Duration, parts []part) []round {
	pairs := int((duration + 2*longestTurn - 1) / (2 * longestTurn))
	length := duration / time.Duration(2*pairs)
	var all []round
	for i := range 2 * pairs {
		r := round{number: i + 1, length: length, whole: i%2 == 1}
		r.plan(rand.New(rand.NewPCG(seed, 1<<32+uint64(i))), parts)
		all = append(all, r)
	}
	return all
}

// plan fills the round with faults, all of which end with it at the latest.
func (r *round) plan(rng *rand.Rand, parts []part) {
	busy := map[string]time.Duration{} // until when
	for at := upTo(rng, between); at < r.length; at += upTo(rng, between) {
		p := parts[rng.IntN(len(parts))]
		k := pick(rng, p.kinds)
		lasts := lasting(rng, k)
		under := 0
		for _, until := range busy {
			if until > at {
				under++
			}
		}
		if under >= atOnce || busy[p.name] > at || k.kills && r.whole {
			continue
		}
		lasts = min(lasts, r.length-at)
		busy[p.name] = at + lasts
		r.faults = append(r.faults, fault{part: p.name, kind: k.name, at: at, lasts: lasts, do: k})
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d))) + time.Millisecond
}

// lasting returns mostly short durations: the square of an even distribution.
func lasting(rng *rand.Rand, k kind) time.Duration {
	chance := rng.Float64()
	if k.longest == 0 {
		return 0
	}
	return shortest + time.Duration(chance*chance*float64(k.longest-shortest))
}

func pick(rng *rand.Rand, kinds []kind) kind {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	at := rng.IntN(sum)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	return kinds[0]
}
