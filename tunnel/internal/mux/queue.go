package mux

import "sync"

// The sizes of what received bytes are kept in: a small frame's, and that of a TLS record
// or two.
const (
	smallChunk = 2 << 10
	largeChunk = 32 << 10
)

var (
	smallChunks = sync.Pool{New: func() any { return &chunk{memory: make([]byte, smallChunk)} }}
	largeChunks = sync.Pool{New: func() any { return &chunk{memory: make([]byte, largeChunk)} }}
)

// chunk is a piece of what a stream has received.
type chunk struct {
	memory     []byte
	begin, end int // of what has not been read
	next       *chunk
}

// newChunk has room for n bytes, or for as many as one can hold.
func newChunk(n int) *chunk {
	pool := &largeChunks
	if n <= smallChunk {
		pool = &smallChunks
	}
	c := pool.Get().(*chunk)
	c.begin, c.end, c.next = 0, 0, nil
	return c
}

func (c *chunk) free() {
	if len(c.memory) == smallChunk {
		smallChunks.Put(c)
	} else {
		largeChunks.Put(c)
	}
}

func (c *chunk) unread() []byte { return c.memory[c.begin:c.end] }

// queue is what a stream has received and nobody has read, in order.
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

// spare is the free room of the last chunk.
func (q *queue) spare() []byte {
	if q.tail == nil {
		return nil
	}
	return q.tail.memory[q.tail.end:]
}

// extend says that n bytes of spare have been filled.
func (q *queue) extend(n int) {
	q.tail.end += n
	q.size += n
}

// pop takes the first chunk, which is not empty. The caller frees it.
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
