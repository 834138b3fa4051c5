package git_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

// TestFetch_OnlyListedHosts uses HTTPS and SSH, and the policy at the time of each fetch.
func TestFetch_OnlyListedHosts(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	s.Create(t, "shop/deploy.git").Commit(map[string]string{"app.yaml": "image: one\n"})
	ssh := s.StartSSH(t)
	owner := policy.New("ConfigMap pipeops/pipeops-policy")
	guard := egress.Guard{Allowed: gitserver.Guard.Allowed, Hosts: owner.FetchHosts}
	remotes := []git.Remote{
		remote(t, s.URL("shop/deploy.git"), secret(s)),
		remote(t, ssh.URL("shop/deploy.git"), map[string][]byte{"url": []byte(ssh.URL("shop")), "identity": ssh.Identity, "known_hosts": ssh.KnownHosts}),
	}
	for _, c := range []struct {
		text string
		fine bool
	}{
		{"", true}, {"fetchHosts: [git.example.com]", false}, {"fetchHosts: ['127.0.0.1']", true}, {"fetchHosts: []", false}, {"fetchHosts: ['127.*']", true},
	} {
		doc, err := policy.Parse([]byte(c.text))
		require.NoError(t, err)
		owner.Set(doc, nil)
		before := s.Requests.Load()
		for _, r := range remotes {
			r.Guard = guard
			refusal := r.CheckHost()
			_, _, err := fetch(t, r, main, "")
			if c.fine {
				require.NoError(t, err, c.text)
				assert.Nil(t, refusal, c.text)
				continue
			}
			refused(t, err, git.HostForbidden, `"127.0.0.1"`, "fetchHosts in ConfigMap pipeops/pipeops-policy")
			assert.Equal(t, err, refusal)
			_, err = git.Resolve(t.Context(), r, main, git.DefaultLimits)
			refused(t, err, git.HostForbidden)
			_, err = git.Checkout(t.Context(), r, main, "", t.TempDir(), git.CheckoutLimits)
			refused(t, err, git.HostForbidden)
		}
		assert.Equal(t, c.fine, s.Requests.Load() > before, c.text)
	}
}
