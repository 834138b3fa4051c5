package limit

import (
	"container/list"
	"net"
	"sync"
)

// Room is a waiting room: it bounds the connections on their way to being of use. When it
// is full the one that has waited longest makes room: an honest peer is through in
// milliseconds, so clients that send nothing push out each other.
type Room struct {
	mu   sync.Mutex
	max  int
	line *list.List
}

// NewRoom makes one for so many connections.
func NewRoom(size int) *Room { return &Room{max: size, line: list.New()} }

// Enter returns the function to leave with, which may be called again.
func (r *Room) Enter(conn net.Conn) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line.Len() >= r.max {
		oldest := r.line.Front()
		_ = oldest.Value.(net.Conn).Close()
		r.line.Remove(oldest)
	}
	place := r.line.PushBack(conn)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.line.Remove(place)
	}
}

// Len is how many wait.
func (r *Room) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line.Len()
}
