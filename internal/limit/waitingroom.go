package limit

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// Room is a waiting room: it bounds the connections that are not settled yet. When it is full, the
// one that has waited longest is closed. An honest peer takes milliseconds, so clients that send
// nothing displace each other. Connections that have sent everything and wait for us have the same
// limit, and are not displaced: see Place and Await.
type Room struct {
	mu   sync.Mutex
	max  int
	line *list.List // those for which we wait
	held int        // those that wait for us
	free *sync.Cond // signals that fewer wait for us
}

// NewRoom returns a room for size connections.
func NewRoom(size int) *Room {
	r := &Room{max: size, line: list.New()}
	r.free = sync.NewCond(&r.mu)
	return r
}

// Enter returns the function that leaves the room, which may be called again.
func (r *Room) Enter(conn net.Conn) (leave func()) { return r.Take(conn).Leave }

// Take is like Enter for a caller that also reports when a connection waits for us.
func (r *Room) Take(conn net.Conn) *Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line.Len() >= r.max {
		oldest := r.line.Front()
		_ = oldest.Value.(net.Conn).Close()
		r.line.Remove(oldest)
	}
	return &Place{room: r, conn: conn, at: r.line.PushBack(conn)}
}

// Await returns true once fewer connections wait for us than may. New connections are best left in
// the system's queue meanwhile: a refused client would return at once, with another ClientHello.
// Await returns false if ctx ends.
func (r *Room) Await(ctx context.Context) bool {
	if r.hasRoom() {
		return ctx.Err() == nil
	}
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free.Broadcast()
	})
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held >= r.max && ctx.Err() == nil {
		r.free.Wait()
	}
	return ctx.Err() == nil
}

func (r *Room) hasRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held < r.max
}

// Len returns how many wait.
func (r *Room) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line.Len() + r.held
}

// Place is a connection's place in a Room.
type Place struct {
	room *Room
	conn net.Conn
	at   *list.Element // nil while it is held
	held bool
	left bool
	then func() // called after leaving
}

// Hold protects the place from newcomers, since the connection now waits for us.
func (p *Place) Hold() {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.left || p.held {
		return
	}
	r.line.Remove(p.at)
	p.at, p.held = nil, true
	r.held++
}

// Release ends Hold: we wait for the connection again, as for one that has just arrived.
func (p *Place) Release() {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.endHold() {
		p.at = r.line.PushBack(p.conn)
	}
}

// Leave gives the place up. It may be called again.
func (p *Place) Leave() {
	if then := p.leave(); then != nil {
		then()
	}
}

func (p *Place) leave() (then func()) {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.endHold() && p.at != nil {
		r.line.Remove(p.at)
	}
	then, p.then = p.then, nil
	p.at, p.left = nil, true
	return then
}

// whenLeft calls a function when the place is left, or at once if it already is.
func (p *Place) whenLeft(then func()) {
	p.room.mu.Lock()
	left := p.left
	if !left {
		p.then = then
	}
	p.room.mu.Unlock()
	if left {
		then()
	}
}

// endHold reports whether the place was held. The lock is held.
func (p *Place) endHold() bool {
	if !p.held {
		return false
	}
	p.held = false
	p.room.held--
	p.room.free.Signal()
	return true
}
