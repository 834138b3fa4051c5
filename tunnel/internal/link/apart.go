package link

import "sync"

// Apart calls f in a goroutine of its own and waits for it. It is for what needs a deep stack now and then,
// in a goroutine that otherwise waits: that keeps for good what its stack has grown to, and there are thousands.
func Apart(f func()) {
	var once sync.WaitGroup
	once.Go(f)
	once.Wait()
}
