package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// replicas is an agent whose identity is where that of pods is.
type replicas struct {
	t     *testing.T
	p     *planetest.Plane
	log   *logbook.Book // the control plane's
	token string
}

func startReplicas(t *testing.T, change func(*controlplane.Config)) *replicas {
	t.Helper()
	r := &replicas{t: t, log: &logbook.Book{}}
	r.p = planetest.Start(t, func(c *controlplane.Config) {
		c.Log = zerolog.New(r.log)
		if change != nil {
			change(c)
		}
	})
	r.token = r.p.Token(t, administration.TokenOptions{TTL: time.Hour, Uses: 1})
	forget := func() {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.AgentNamespace, Name: "pipeops-agent-identity"}}
		require.NoError(t, client.IgnoreNotFound(kubetest.ControlPlane(t).Client.Delete(context.Background(), s)))
	}
	forget()
	t.Cleanup(forget)
	return r
}

// run starts a replica. Its log is for whoever wants to look.
func (r *replicas) run(name string) (*running, *logbook.Book) {
	r.t.Helper()
	log := &logbook.Book{}
	opts := optionsOf(r.t, r.p, "", r.token)
	opts.Log, opts.Replica, opts.RenewalCheck = zerolog.New(log), name, 100*time.Millisecond
	return launch(r.t, opts), log
}

// stored is the certificate that the replicas share, or nil.
func (r *replicas) stored() *identity.Identity {
	s := &corev1.Secret{}
	err := kubetest.ControlPlane(r.t).Client.Get(r.t.Context(), client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: "pipeops-agent-identity"}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	id, err := identity.Decode(s.Data)
	if err != nil {
		return nil
	}
	return id
}

func (r *replicas) up(names ...string) {
	r.t.Helper()
	for _, name := range names {
		await.Until(r.t, name+" has its tunnel", func() bool {
			return r.log.Count("agent's tunnel is up", `"instance":"`+name+`"`) > 0
		})
	}
}

// TestReplicas_RegisterOnce starts three replicas at once with a token that is good for
// one use.
func TestReplicas_RegisterOnce(t *testing.T) {
	r := startReplicas(t, nil)
	names := []string{"one", "two", "three"}
	var logs []*logbook.Book
	for _, name := range names {
		_, log := r.run(name)
		logs = append(logs, log)
	}
	r.up(names...)
	asked, found := 0, 0
	for _, log := range logs {
		asked += log.Count("identity issued and stored")
		found += log.Count("loaded the stored identity") + log.Count("using the agent certificate that another replica obtained")
	}
	assert.Equal(t, 1, asked, "one asked")
	assert.Equal(t, 2, found, "the others found what it got")
	assert.Equal(t, 1, r.log.Count("agent registered"))
	agents, err := r.p.Agents.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, agents, 1)
	assert.NotNil(t, r.stored())
}

// TestReplicas_ReplaceDeadRegistrant leaves a request behind, as a replica does that dies in the
// middle: another one registers with its key.
func TestReplicas_ReplaceDeadRegistrant(t *testing.T) {
	suite.Release(t, "replicas that begin together")
	r := startReplicas(t, nil)
	key, err := identity.NewKey()
	require.NoError(t, err)
	parts, err := (&identity.Request{Key: key, By: "dead"}).With(nil)
	require.NoError(t, err)
	require.NoError(t, kubetest.ControlPlane(t).Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.AgentNamespace, Name: "pipeops-agent-identity"}, Data: parts,
	}))
	r.run("one")
	r.up("one")
	id := r.stored()
	require.NotNil(t, id)
	assert.Equal(t, key.Public(), id.Key().Public())
}

// TestReplicas_ShareRenewal renews the certificate again and again. The key before the last is
// refused, so a replica that did not follow would lose its access.
func TestReplicas_ShareRenewal(t *testing.T) {
	suite.Release(t, "replicas that begin together")
	r := startReplicas(t, func(c *controlplane.Config) { c.CertificateTTL = 24 * time.Hour })
	_, one := r.run("one")
	_, two := r.run("two")
	r.up("one", "two")
	followed := func(log *logbook.Book) int {
		return log.Count("identity issued and stored") + log.Count("using the agent certificate that another replica obtained")
	}
	const renewals = 3
	for range renewals {
		before, byOne, byTwo := r.stored(), followed(one), followed(two)
		r.p.Clock.Advance(17 * time.Hour)
		await.Until(t, "the certificate is renewed", func() bool {
			id := r.stored()
			return id != nil && !id.Same(before)
		})
		await.Until(t, "both replicas have followed", func() bool { return followed(one) > byOne && followed(two) > byTwo })
	}
	asked := one.Count("identity issued and stored") + two.Count("identity issued and stored")
	assert.LessOrEqual(t, asked, 1+renewals+1, "one of the two asked each time")
	for _, log := range []*logbook.Book{one, two} {
		assert.Zero(t, log.Count("heartbeat failed"), "nobody was refused")
		assert.Zero(t, log.Count("tunnel is down"), "no tunnel was dropped")
	}
	assert.Equal(t, 2, r.log.Count("agent's tunnel is up"))
}

// TestReplicas_HandOverLeadership stops the replica that leads: the other one leads
// without waiting for the lease to end, and the agent stays online.
func TestReplicas_HandOverLeadership(t *testing.T) {
	r := startReplicas(t, nil)
	first, log := r.run("one")
	await.Until(t, "the first leads", func() bool { return log.Count("this replica is the leader") == 1 })
	_, other := r.run("two")
	r.up("one", "two")
	assert.Zero(t, other.Count("this replica is the leader"))
	await.Until(t, "the agent is online", func() bool { return r.log.Count("agent changed state", `"state":"online"`) == 1 })
	online := r.log.Count("agent changed state")
	first.stop()
	await.Until(t, "the second leads", func() bool { return other.Count("this replica is the leader") == 1 })
	assert.Equal(t, 1, r.log.Count("draining agent's tunnel"))
	assert.Zero(t, log.Count("may still route"))
	r.p.AwaitOnline(t, r.p.Clock.Now())
	assert.Equal(t, online, r.log.Count("agent changed state"), "it was never away")
}
