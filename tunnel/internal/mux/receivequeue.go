package mux

import "sync"

// Received bytes are kept in buffers of these sizes: for a small frame, and up to a batch of bulk.
// At most five times as much memory is used as was received.
const (
	smallChunk  = 2 << 10
	mediumChunk = 8 << 10
	largeChunk  = 40 << 10
)

var chunks = [...]sync.Pool{chunksOf(smallChunk), chunksOf(mediumChunk), chunksOf(largeChunk)}

func chunksOf(size int) sync.Pool {
	return sync.Pool{New: func() any { return &chunk{memory: make([]byte, size)} }}
}

// chunk is a piece of what a stream has received.
type chunk struct {
	memory     []byte
	begin, end int // of the unread part
	next       *chunk
}

// newChunk has room for n bytes, or for the most that a chunk can hold.
func newChunk(n int) *chunk {
	c := poolOf(n).Get().(*chunk)
	c.begin, c.end, c.next = 0, 0, nil
	return c
}

func poolOf(size int) *sync.Pool {
	switch {
	case size <= smallChunk:
		return &chunks[0]
	case size <= mediumChunk:
		return &chunks[1]
	default:
		return &chunks[2]
	}
}

func (c *chunk) free() { poolOf(len(c.memory)).Put(c) }

func (c *chunk) unread() []byte { return c.memory[c.begin:c.end] }

// queue is the received and unread data of a stream, in order.
type queue struct {
	head, tail *chunk
	size       int
}

func (q *queue) push(c *chunk) {
	q.size += c.end - c.begin
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

// spare returns the free room of the last chunk.
func (q *queue) spare() []byte {
	if q.tail == nil {
		return nil
	}
	return q.tail.memory[q.tail.end:]
}

// extend marks n bytes of spare as filled.
func (q *queue) extend(n int) {
	q.tail.end += n
	q.size += n
}

// pop removes and returns the first chunk, which is not empty. The caller frees it.
func (q *queue) pop() *chunk {
	c := q.head
	if q.head = c.next; q.head == nil {
		q.tail = nil
	}
	q.size -= c.end - c.begin
	return c
}

func (q *queue) read(p []byte) (n int) {
	for n < len(p) && q.head != nil {
		took := copy(p[n:], q.head.unread())
		q.head.begin += took
		q.size -= took
		if n += took; q.head.begin == q.head.end {
			q.pop().free()
		}
	}
	return n
}

func (q *queue) clear() {
	for q.head != nil {
		q.pop().free()
	}
}
