package mux

import "testing"

// First what an idle session sends waits, and then more than fits with it.
func TestBatch_TakeSmallBuffer(t *testing.T) {
	b := newBatch(nil, nil, 0, nil)
	for range 2 {
		b.take(100)
		if cap(b.waiting) != littleSize {
			t.Fatalf("a buffer of %d bytes", cap(b.waiting))
		}
		b.waiting = append(b.waiting, make([]byte, 99)...)
		b.waiting = append(b.waiting, 'x')
	}
	b.take(littleSize)
	if cap(b.waiting) < batchSize || len(b.waiting) != 200 || b.waiting[199] != 'x' {
		t.Errorf("%d bytes in a buffer of %d", len(b.waiting), cap(b.waiting))
	}
}
