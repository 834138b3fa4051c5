package git_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

func signedBy(t *testing.T, keys ...string) []signature.Signers {
	t.Helper()
	s := signature.Signers{Source: "signers in a test"}
	for _, text := range keys {
		key, err := signature.ReadKey(text)
		require.NoError(t, err)
		s.Keys = append(s.Keys, key)
	}
	return []signature.Signers{s}
}

// TestFetch_Signed has Git sign and serve, over HTTPS and SSH, with and without a server that can
// leave files out.
func TestFetch_Signed(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	repo := s.Create(t, "shop/deploy.git")
	unsigned := repo.Commit(map[string]string{"app.yaml": "replicas: 1\n"})
	repo.Git("tag", "plain", unsigned)
	ann := repo.Signed()
	repo.Git("tag", "-s", "-m", "a release", "v1", unsigned)
	repo.Git("tag", "light", unsigned)
	repo.Git("push", "--quiet", "--tags", "origin")
	ssh := s.StartSSH(t)
	remotes := map[string]git.Remote{
		"https": remote(t, s.URL("shop/deploy.git"), secret(s)),
		"ssh": remote(t, ssh.URL("shop/deploy.git"), map[string][]byte{
			"url": []byte(ssh.URL("shop/deploy.git")), "identity": ssh.Identity, "known_hosts": ssh.KnownHosts,
		}),
	}
	each := func(t *testing.T, ref runnerapi.GitRef, want git.Reason, keys ...string) {
		t.Helper()
		for name, r := range remotes {
			r.Signers = signedBy(t, keys...)
			for what, get := range map[string]func() (string, error){
				"fetch": func() (string, error) { c, _, err := fetch(t, r, ref, ""); return c, err },
				"known": func() (string, error) {
					found, files, err := git.Fetch(t.Context(), r, ref, "", repo.Git("rev-parse", "HEAD"), git.DefaultLimits)
					assert.True(t, ref != main || files == nil)
					return found.Commit, err
				},
				"resolve": func() (string, error) {
					found, err := git.Resolve(t.Context(), r, ref, git.DefaultLimits)
					return found.Commit, err
				},
				"checkout": func() (string, error) { return git.Checkout(t.Context(), r, ref, "", t.TempDir(), git.CheckoutLimits) },
			} {
				_, err := get()
				if want == "" {
					require.NoError(t, err, "%s %s", name, what)
					continue
				}
				refused(t, err, want)
			}
		}
	}
	unlisted := repo.Signed()
	for _, filter := range []string{"false", "true"} {
		repo.Config("uploadpack.allowFilter", filter)
		each(t, main, git.Reason(signature.Unsigned), ann)
		each(t, runnerapi.GitRef{Tag: "v1"}, "", ann)
		each(t, runnerapi.GitRef{Tag: "v1"}, git.Reason(signature.NotListed), unlisted)
		each(t, runnerapi.GitRef{Tag: "light"}, git.Reason(signature.Unsigned), ann)
		each(t, runnerapi.GitRef{Tag: "v1", Commit: unsigned}, "", ann)
		each(t, runnerapi.GitRef{Tag: "plain", Commit: unsigned}, git.Reason(signature.Unsigned), ann)
	}
	signed := repo.Commit(map[string]string{"app.yaml": "replicas: 2\n"})
	each(t, main, "", unlisted, ann)
	each(t, main, git.Reason(signature.NotListed), ann)
	r := remotes["https"]
	r.Signers = append(signedBy(t, unlisted), signedBy(t, ann)...)
	_, _, err := fetch(t, r, main, "")
	refused(t, err, git.Reason(signature.NotListed), "signers in a test")
	commit, files, err := fetch(t, remotes["ssh"], main, "")
	require.NoError(t, err)
	assert.Equal(t, signed, commit)
	assert.Len(t, files, 1)
}

// TestFetch_MovedTag pushes an old, signed tag object under the name of a new release.
func TestFetch_MovedTag(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	repo := s.Create(t, "shop/deploy.git")
	old := repo.Commit(map[string]string{"app.yaml": "replicas: 1\n"})
	ann := repo.Signed()
	repo.Git("tag", "-s", "-m", "a release", "v1", old)
	repo.Git("update-ref", "refs/tags/v2", repo.Git("rev-parse", "v1"))
	repo.Git("push", "--quiet", "--tags", "origin")
	r := remote(t, s.URL("shop/deploy.git"), secret(s))
	r.Signers = signedBy(t, ann)
	_, _, err := fetch(t, r, runnerapi.GitRef{Tag: "v2"}, "")
	refused(t, err, git.Reason(signature.Mismatch), `is the signed tag "v1" under another name`)
}
