package traffic

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// MaxHosts is how many hosts are counted. One that is busy all day takes about 17 KB.
const MaxHosts = 500

// App names an App.
type App struct{ Namespace, Name string }

// Owner names what is counted apart: one host of an App. A wildcard is one host.
type Owner struct {
	App
	Host string
}

// Counters have the figures of all hosts, and the access logs.
type Counters struct {
	Logs *AccessLogs

	now   func() time.Time
	mu    sync.Mutex // no request takes it
	hosts map[Owner]*Host
	full  map[string]bool // namespaces that had no room
	since time.Time       // of full, which holds for a minute
}

// New returns Counters that have counted nothing yet. now is the clock; nil for the machine's.
func New(now func() time.Time) *Counters {
	if now == nil {
		now = time.Now
	}
	return &Counters{Logs: newAccessLogs(now), now: now, hosts: map[Owner]*Host{}}
}

// Now returns the time by the clock of the Counters.
func (c *Counters) Now() time.Time { return c.now() }

// Host returns what counts the requests of a host; nil if there is no room for another one. When
// all places are taken, a namespace takes one of the namespace that has the most, if that has more.
func (c *Counters) Host(of Owner) *Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[of]; h != nil {
		return h
	}
	now := c.now()
	if len(c.hosts) >= MaxHosts {
		if now.Sub(c.since) >= Hour.Step {
			c.full, c.since = map[string]bool{}, now
		}
		if c.full[of.Namespace] || !c.makeRoom(of.Namespace) {
			c.full[of.Namespace] = true
			return nil
		}
	}
	h := newHost()
	h.touched = now
	c.hosts[of] = h
	return h
}

// makeRoom removes the host that was not requested for the longest time, of the namespace with the
// most hosts.
func (c *Counters) makeRoom(namespace string) bool {
	taken := map[string]int{}
	for of := range c.hosts {
		taken[of.Namespace]++
	}
	most := namespace
	for name, n := range taken {
		if n > taken[most] || n == taken[most] && name < most && most != namespace {
			most = name
		}
	}
	if most != namespace && taken[most] <= taken[namespace]+1 {
		most = namespace // both have their share
	}
	var oldest Owner
	var at time.Time
	for of, h := range c.hosts {
		if last := h.last(); of.Namespace == most && (oldest.Host == "" || last.Before(at)) {
			oldest, at = of, last
		}
	}
	if most == namespace && c.now().Sub(at) < Day.Step {
		return false // its own hosts do not push each other out, but for those without visitors
	}
	delete(c.hosts, oldest)
	return true
}

// Counted reports whether a host has a place.
func (c *Counters) Counted(of Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[of] != nil
}

// Value is what was counted in one step of a span.
type Value struct {
	Number int64 // of the step, since 1970
	Figures
}

// HostValues are the figures of one host, without the steps that had no request.
type HostValues struct {
	Owner
	Minutes, Hours []Value
}

// Values returns the figures of all hosts that had requests within a day, those with the newest
// requests first.
func (c *Counters) Values() []HostValues {
	c.mu.Lock()
	owners, last := make([]Owner, 0, len(c.hosts)), map[Owner]time.Time{}
	hosts := make(map[Owner]*Host, len(c.hosts))
	for of, h := range c.hosts {
		owners, hosts[of], last[of] = append(owners, of), h, h.last()
	}
	c.mu.Unlock()
	slices.SortFunc(owners, func(a, b Owner) int { return cmp.Or(last[b].Compare(last[a]), compareOwners(a, b)) })
	values, now := make([]HostValues, 0, len(owners)), c.now()
	for _, of := range owners {
		v := HostValues{Owner: of}
		if v.Minutes, v.Hours = hosts[of].values(now); len(v.Hours) > 0 {
			values = append(values, v)
		}
	}
	return values
}

func compareOwners(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Host, b.Host))
}

// Last returns when a request was counted last; the zero time for none.
func (c *Counters) Last() (last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		if at := h.last(); h.used() && at.After(last) {
			last = at
		}
	}
	return last
}
