package httpserver

import (
	stdlog "log"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// ErrorLog returns a log for net/http's own messages. They are about connections of peers, so they
// are logged at level debug. The prefix says whose they are.
func ErrorLog(log zerolog.Logger, prefix string) *stdlog.Logger {
	return stdlog.New(debugWriter{log, prefix}, "", 0)
}

type debugWriter struct {
	log    zerolog.Logger
	prefix string
}

// Write implements io.Writer.
func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug().Msg(w.prefix + strings.TrimSpace(string(p)))
	return len(p), nil
}

// bufferSize is that of a buffer with which a reverse proxy copies a body.
const bufferSize = 32 << 10

// Buffers is a pool for httputil.ReverseProxy, which otherwise makes a buffer for each body.
type Buffers struct{ pool sync.Pool }

// NewBuffers returns an empty pool.
func NewBuffers() *Buffers {
	return &Buffers{sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

// Get implements httputil.BufferPool.
func (b *Buffers) Get() []byte { return b.pool.Get().(*[bufferSize]byte)[:] }

// Put implements httputil.BufferPool.
func (b *Buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
