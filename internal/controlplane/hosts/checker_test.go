package hosts_test

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

func TestResolver_Prove(t *testing.T) {
	dns := dnstest.Start(t)
	r := &hosts.Resolver{Servers: []string{dns.Address}}
	dns.Set(t, "a1."+domain, "CNAME lb.example.net.") // which does not hide it
	dns.Set(t, "www.example.org", "CNAME a1."+domain+".")
	dns.Set(t, "far.example.org", "CNAME between.example.org.")
	dns.Set(t, "between.example.org", "CNAME A1."+domain+".")
	dns.Set(t, "other.example.org", "CNAME a2."+domain+".")
	dns.Set(t, "round.example.org", "CNAME about.example.org.")
	dns.Set(t, "about.example.org", "CNAME round.example.org.")
	dns.Set(t, "_pipeops.example.org", `TXT "v=spf1"`, `TXT "pipeops-agent=a1"`)
	dns.Set(t, "_pipeops.many.example.org", append(manyTexts(50), `TXT "pipeops-agent=a1"`)...)
	for host, want := range map[string]string{
		"www.example.org": hosts.CNAME, "far.example.org": hosts.CNAME, "other.example.org": "", "round.example.org": "",
		"example.org": hosts.TXT, "*.example.org": hosts.TXT, "many.example.org": hosts.TXT, "none.example.org": "",
	} {
		proof, err := r.Prove(t.Context(), "A1", host, domain)
		require.NoError(t, err, host)
		assert.Equal(t, want, proof, host)
	}
	proof, err := r.Prove(t.Context(), "a2", "www.example.org", domain)
	require.NoError(t, err)
	assert.Empty(t, proof, "it is another agent's")
	dns.Break(true)
	_, err = r.Prove(t.Context(), "a1", "www.example.org", domain)
	require.ErrorContains(t, err, "SERVFAIL")
	_, err = (&hosts.Resolver{}).Prove(t.Context(), "a1", "www.example.org", domain)
	require.Error(t, err)
}

func manyTexts(n int) (records []string) {
	for range n {
		records = append(records, `TXT "`+strings.Repeat("x", 200)+`"`)
	}
	return records
}

// world is a checker with a database, a clock and a DNS of its own.
type world struct {
	t     *testing.T
	store *store.Store
	dns   *dnstest.Server
	ahead atomic.Int64
	look  func()
}

func (w *world) now() time.Time { return noon.Add(time.Duration(w.ahead.Load())) }

// newWorld calls asked, if there is one, before DNS answers.
func newWorld(t *testing.T, on postgres.Engine, asked ...func(w *world, name string)) *world {
	t.Helper()
	s := storetest.Open(t, &databases, on)
	w := &world{t: t, store: s, dns: dnstest.Start(t)}
	for _, f := range asked {
		w.dns.OnQuestion(func(name string) { f(w, name) })
	}
	for id, name := range map[string]string{"a1": "shop", "a2": "bank"} {
		require.NoError(t, s.InsertAgent(t.Context(), store.Agent{ID: id, Name: name, ClusterUID: id, State: "online", RegisteredAt: noon}))
	}
	c := hosts.NewChecker(hosts.Checker{
		Store: s, Resolver: &hosts.Resolver{Servers: []string{w.dns.Address}}, Domain: domain, Now: w.now, Log: zerolog.Nop(),
	})
	w.look = c.Look
	await.Background(t, "the checker", c.Run)
	return w
}

func (w *world) claim(agent, host string) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		return tx.PutClaim(w.t.Context(), store.HostClaim{AgentID: agent, Host: host, ClaimedAt: w.now()})
	})
	w.look()
}

func (w *world) grant(agent, host string) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		return tx.PutGrant(w.t.Context(), store.HostGrant{Host: host, AgentID: agent, GrantedAt: w.now()})
	})
}

func (w *world) take(host string) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		_, err := tx.DeleteGrant(w.t.Context(), host)
		return err
	})
}

func (w *world) update(change func(*store.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.store.Update(w.t.Context(), change))
}

// owner waits until a host has that owner; none if it is empty.
func (w *world) owner(host, want string) {
	w.t.Helper()
	await.Until(w.t, host+" is served by "+want, func() bool {
		w.look()
		claims, err := w.store.ClaimsTo(w.t.Context(), host)
		if err != nil {
			return false
		}
		for _, c := range claims {
			if c.NextAt.Before(w.now()) {
				return false // not looked at yet
			}
		}
		owner, _ := hosts.Owner(claims, w.now())
		return owner.AgentID == want
	})
}

func (w *world) pass(d time.Duration) { w.ahead.Add(int64(d)) }

func TestHostClaim_Lifecycle(t *testing.T) {
	w := newWorld(t, postgres.Chosen(t))
	const host = "www.example.org"
	w.claim("a2", host)
	w.owner(host, "")
	w.dns.Set(t, host, "CNAME a1."+domain+".")
	w.claim("a1", host)
	w.owner(host, "a1")

	w.dns.Set(t, host, "A 192.0.2.1")
	w.pass(25 * time.Hour)
	w.owner(host, "a1") // a day's grace begins when that is noticed
	w.pass(23 * time.Hour)
	w.owner(host, "a1")
	w.pass(2 * time.Hour)
	w.owner(host, "")
	w.dns.Set(t, host, "CNAME a1."+domain+".")
	w.pass(time.Hour)
	w.owner(host, "a1")

	w.dns.Break(true)
	w.pass(100 * time.Hour)
	w.owner(host, "a1") // that DNS is silent proves nothing
	w.dns.Break(false)
	w.dns.Set(t, host, "CNAME a2."+domain+".")
	w.pass(time.Minute)
	w.owner(host, "a2") // at once: it has a proof, and the other has lost its own
}

// TestHostClaim_ConcurrentChange changes a grant and a claim while DNS is asked.
func TestHostClaim_ConcurrentChange(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		const granted, rewritten = "granted.example.org", "rewritten.example.org"
		other := store.HostClaim{AgentID: "a1", Host: rewritten, ClaimedAt: noon, NextAt: noon.Add(time.Hour), Reason: "written meanwhile"}
		var grant, rewrite sync.Once
		w := newWorld(t, on, func(w *world, name string) {
			change := func(change func(tx *store.Tx) error) func() {
				return func() { assert.NoError(t, w.store.Update(t.Context(), change)) }
			}
			switch name {
			case granted + ".":
				grant.Do(change(func(tx *store.Tx) error {
					return tx.PutGrant(t.Context(), store.HostGrant{Host: granted, AgentID: "a1", GrantedAt: noon})
				}))
			case rewritten + ".":
				rewrite.Do(change(func(tx *store.Tx) error { return tx.PutClaim(t.Context(), other) }))
			}
		})
		written := func() []store.HostClaim {
			claims, err := w.store.ClaimsTo(t.Context(), rewritten)
			require.NoError(t, err)
			return claims
		}
		w.claim("a1", rewritten)
		await.Until(t, "the claim is written by another", func() bool { return written()[0].Reason == other.Reason })
		w.claim("a1", granted) // it is checked in a later pass than the claim that was written meanwhile
		w.owner(granted, "a1")
		assert.Equal(t, []store.HostClaim{other}, written())
	})
}

func TestHostGrant_OverridesDNS(t *testing.T) {
	w := newWorld(t, postgres.Chosen(t))
	const own, below = "www.example.org", "portal." + domain
	w.dns.Set(t, own, "CNAME a1."+domain+".")
	for _, host := range []string{own, below} {
		w.claim("a1", host)
		w.claim("a2", host)
	}
	w.owner(own, "a1")
	w.owner(below, "")
	for _, host := range []string{own, below} {
		w.grant("a2", host)
		w.owner(host, "a2")
	}
	for _, host := range []string{own, below} {
		w.take(host)
	}
	w.owner(own, "a1")
	w.owner(below, "")
}

// TestHostGrant_RevokedAtOnce revokes a grant with working and broken DNS. The day of grace is for
// DNS zones alone.
func TestHostGrant_RevokedAtOnce(t *testing.T) {
	w := newWorld(t, postgres.Chosen(t))
	const host = "www.example.org"
	w.claim("a1", host)
	for _, broken := range []bool{false, true} {
		w.grant("a1", host)
		w.owner(host, "a1")
		w.dns.Break(broken)
		w.take(host)
		w.owner(host, "")
	}
}

var databases postgres.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop).Run()) }
