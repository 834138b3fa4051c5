package traffic

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The most bytes of what a visitor sends that an entry has.
const maxMethod, maxHostName, maxPath, maxUserAgent, maxID = 16, 253, 512, 128, 64

// entry is a request in an access log.
type entry struct {
	at time.Time
	runnerapi.AccessEntry
}

// line returns the entry as a line of a log. Its text quotes what the visitor has chosen.
func (e entry) line(replica string) runnerapi.LogLine {
	text := fmt.Sprintf("%s %s %d %d %.3f %s %s", e.Address, strconv.Quote(e.Method+" "+e.Host+e.Path), e.Status, e.Sent,
		e.DurationMillis/1000, strconv.Quote(e.UserAgent), e.RequestID)
	return runnerapi.LogLine{Time: e.at.UTC(), Pod: replica, Line: text, Request: &e.AccessEntry}
}

// AccessLog has the last requests of one App. A nil AccessLog keeps nothing.
type AccessLog struct {
	mu      sync.Mutex
	size    int
	entries []entry // a ring, once it is full
	base    int64   // number of an entry that was at its first place
	next    int64   // number of the next entry
	changed chan struct{}
}

// Add adds a request that ended at a time. It keeps the text without control characters, and cut.
func (l *AccessLog) Add(at time.Time, e runnerapi.AccessEntry) {
	if l == nil {
		return
	}
	// A copy, because a part of a text would keep the whole of it in memory.
	clean := func(s string, most int) string { return strings.Clone(printable.Text(printable.Shorten(s, most))) }
	e.Method, e.Host, e.Path = clean(e.Method, maxMethod), clean(e.Host, maxHostName), clean(e.Path, maxPath)
	e.UserAgent, e.RequestID, e.Address = clean(e.UserAgent, maxUserAgent), clean(e.RequestID, maxID), clean(e.Address, maxID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) < l.size {
		l.entries = append(l.entries, entry{at, e})
	} else {
		l.entries[l.at(l.next)] = entry{at, e}
	}
	l.next++
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// since returns the entries from a number on, the number of the first of these, and what is closed
// when there is another one.
func (l *AccessLog) since(number int64) (entries []entry, first int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = max(number, l.next-int64(len(l.entries)))
	entries = l.from(first)
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return entries, first, l.changed
}

// from returns the entries from a number on.
func (l *AccessLog) from(first int64) (entries []entry) {
	for n := first; n < l.next; n++ {
		entries = append(entries, l.entries[l.at(n)])
	}
	return entries
}

// at returns where an entry is.
func (l *AccessLog) at(number int64) int64 { return (number - l.base) % int64(l.size) }

// resize keeps as many of the last entries as there is room for now.
func (l *AccessLog) resize(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if size == l.size {
		return
	}
	kept := l.from(max(l.next-int64(len(l.entries)), l.next-int64(size)))
	l.size, l.entries, l.base = size, kept, l.next-int64(len(kept))
}
