package mux

import "sync"

// What received bytes are kept in has one of these sizes: a small frame's, and up to a batch's of
// bulk. No more than five times as much is kept as was received.
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
	begin, end int // of what has not been read
	next       *chunk
}

// newChunk has room for n bytes, or for as many as one can hold.
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
