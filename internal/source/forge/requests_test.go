package forge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

// place is where a repository and the token for it are.
type place struct {
	remote      git.Remote
	repository  forge.Repository
	credentials forge.Credentials
}

func at(t *testing.T, s *forgetest.Server, kind runnerapi.Forge) place {
	t.Helper()
	p := place{remote: git.Remote{URL: s.HTTPS.URL + "/shop/web.git", Guard: gitserver.Guard}}
	var err error
	p.repository, err = forge.Locate(p.remote.URL, runnerapi.SourceReport{Forge: kind})
	require.NoError(t, err)
	p.credentials, err = forge.ReadCredentials("git-status", s.Secret(t, s.HTTPS.URL+"/shop/"), p.repository)
	require.NoError(t, err)
	return p
}

func TestRequests_EachForge(t *testing.T) {
	for kind := range kinds {
		s := forgetest.Start(t, "shop/web", "hush")
		p := at(t, s, kind)
		none, err := forge.Requests(t.Context(), p.remote, p.repository, p.credentials)
		require.NoError(t, err)
		assert.Empty(t, none)

		for n := int64(1); n <= 120; n++ {
			s.Open(forgetest.Pull{Number: n, Branch: "branch", Commit: commit})
		}
		s.Open(forgetest.Pull{Number: 7, Branch: "patch\x1b[2J-1", Commit: commit, Labels: []string{"bug", "preview"}, Fork: true})
		s.Open(forgetest.Pull{Number: 8, Branch: "broken", Commit: "../../user"})
		all, err := forge.Requests(t.Context(), p.remote, p.repository, p.credentials)
		require.NoError(t, err, kind)
		require.Len(t, all, 119, "%s: all pages, without the one whose commit is none", kind)
		assert.Equal(t, forge.Request{Number: 120, Branch: "branch", Commit: commit}, forge.Request{Number: all[0].Number, Branch: all[0].Branch, Commit: all[0].Commit})
		assert.False(t, all[0].Fork)
		fork := all[112]
		assert.EqualValues(t, 7, fork.Number)
		assert.True(t, fork.Fork)
		assert.Equal(t, []string{"bug", "preview"}, fork.Labels)
		assert.NotContains(t, fork.Branch, "\x1b")

		for n := int64(121); n <= 501; n++ {
			s.Open(forgetest.Pull{Number: n, Branch: "branch", Commit: commit})
		}
		_, err = forge.Requests(t.Context(), p.remote, p.repository, p.credentials)
		refused(t, err, git.TooLarge)

		s.UseToken("another")
		_, err = forge.Requests(t.Context(), p.remote, p.repository, p.credentials)
		refused(t, err, git.Denied)
	}
}

// TestRequests_TooLarge: what a server sends is bounded.
func TestRequests_TooLarge(t *testing.T) {
	s := forgetest.Start(t, "shop/web", "hush")
	huge := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("[\"" + strings.Repeat("x", 9<<20) + "\"]"))
	}))
	t.Cleanup(huge.Close)
	s.HTTPS = huge
	p := at(t, s, runnerapi.GitHub)
	_, err := forge.Requests(t.Context(), p.remote, p.repository, p.credentials)
	refused(t, err, git.TooLarge)
	p.remote.Guard = egress.Guard{}
	_, err = forge.Requests(t.Context(), p.remote, p.repository, p.credentials)
	refused(t, err, git.HostForbidden)
}

func TestComment_EachForge(t *testing.T) {
	for kind := range kinds {
		s := forgetest.Start(t, "shop/web", "hush")
		p := at(t, s, kind)
		s.Open(forgetest.Pull{Number: 3, Branch: "branch", Commit: commit})
		write := func(number, id int64, text string) (int64, error) {
			return forge.Comment(t.Context(), p.remote, p.repository, p.credentials, number, id, text)
		}
		id, err := write(3, 0, "first")
		require.NoError(t, err, kind)
		same, err := write(3, id, "second")
		require.NoError(t, err, kind)
		assert.Equal(t, id, same)
		other, err := write(3, 99, "the one before was deleted")
		require.NoError(t, err, kind)
		assert.NotEqual(t, id, other)
		assert.Equal(t, []forgetest.Comment{{Number: 3, Text: "second"}, {Number: 3, Text: "the one before was deleted"}}, s.Comments(), kind)
		_, err = write(4, 0, "to none")
		refused(t, err, git.NotFound)
	}
	assert.Equal(t, "`@someone '](https://evil.example.com)`", forge.Code("@someone `](https://evil.example.com)"))
}
